/* A libnvidia-ml.so.1 for benchmarks: GPUS (compiled in) H200s whose figures move with the clock, or stand where
 * STILL is defined. Every reader of the machine loads the same file, so none of them is told an easier box.
 *
 * build: gcc -O2 -Wall -Werror -shared -fPIC -DGPUS=8 -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 stub_nvml.c
 *
 * The file `pids` beside the library, read by nvmlInit, has one process id a line, "GPU PID MIB". Struct layouts are
 * facts of the NVML ABI. Calls that a real H200 does not support answer 3, as they do there.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef unsigned int U;
typedef unsigned long long L;
typedef struct dev { int i; } *H;
enum { OK = 0, UNINIT = 1, ARG = 2, NOSUP = 3, NOTFOUND = 6, SMALL = 7, TIMEOUT = 10, VERMIS = 25 };
#define API __attribute__((visibility("default")))
#define MIB (1ull << 20)
#define TOTAL (143771 * MIB)
#define RESERVED (627 * MIB)
#define PIDS 256

static struct dev devs[GPUS];
static struct { int gpu; U pid; U mib; } procs[PIDS];
static int inited, nprocs;

/* A wave between lo and hi with a period of so many seconds, another phase on each GPU and in each figure. */
static int wave(H h, int period, int lo, int hi) {
#ifdef STILL
    double t = 0;
#else
    struct timespec s;
    clock_gettime(CLOCK_REALTIME, &s);
    double t = s.tv_sec + s.tv_nsec / 1e9;
#endif
    double x = fmod(t / period + h->i * .37, 1);
    return lo + (int)((x < .5 ? 2 * x : 2 - 2 * x) * (hi - lo));
}
static int bad(H h) { return !inited ? UNINIT : h < devs || h >= devs + GPUS ? ARG : OK; }
#define GATE do { int r_ = bad(h); if (r_) return r_; } while (0)

static void read_procs(void) {
    Dl_info here;
    char path[4096];
    nprocs = 0;
    if (!dladdr((void *)read_procs, &here) || !strrchr(here.dli_fname, '/')) return;
    snprintf(path, sizeof path, "%.*s/pids", (int)(strrchr(here.dli_fname, '/') - here.dli_fname), here.dli_fname);
    FILE *f = fopen(path, "r");
    if (!f) return;
    while (nprocs < PIDS && fscanf(f, "%d %u %u", &procs[nprocs].gpu, &procs[nprocs].pid, &procs[nprocs].mib) == 3)
        nprocs++;
    fclose(f);
}
static int init(void) {
    for (int i = 0; i < GPUS; i++) devs[i].i = i;
    read_procs();
    inited++;
    return OK;
}
API int nvmlInit(void) { return init(); }
API int nvmlInit_v2(void) { return init(); }
API int nvmlInitWithFlags(U f) { (void)f; return init(); }
API int nvmlShutdown(void) { if (!inited) return UNINIT; inited--; return OK; }
API const char *nvmlErrorString(int r) {
    switch (r) {
    case OK: return "Success";
    case UNINIT: return "Uninitialized";
    case ARG: return "Invalid Argument";
    case NOSUP: return "Not Supported";
    case NOTFOUND: return "Not Found";
    case TIMEOUT: return "Timeout";
    case SMALL: return "Insufficient Size";
    case VERMIS: return "Argument Version Mismatch";
    default: return "Unknown Error";
    }
}
static int put(char *out, U cap, const char *text) { if (!inited) return UNINIT; snprintf(out, cap, "%s", text); return OK; }
API int nvmlSystemGetDriverVersion(char *o, U n) { return put(o, n, "580.95.05"); }
API int nvmlSystemGetNVMLVersion(char *o, U n) { return put(o, n, "13.580.95.05"); }
API int nvmlSystemGetCudaDriverVersion(int *o) { *o = 13000; return OK; }
API int nvmlSystemGetCudaDriverVersion_v2(int *o) { *o = 13000; return OK; }
API int nvmlSystemGetProcessName(U pid, char *o, U n) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    FILE *f = fopen(path, "r");
    if (!f) return NOTFOUND;
    size_t k = fread(o, 1, n - 1, f);
    fclose(f);
    o[k] = 0;
    o[strcspn(o, "\n")] = 0;
    return OK;
}

API int nvmlDeviceGetCount(U *n) { if (!inited) return UNINIT; *n = GPUS; return OK; }
API int nvmlDeviceGetCount_v2(U *n) { return nvmlDeviceGetCount(n); }
API int nvmlDeviceGetHandleByIndex_v2(U i, H *h) { if (!inited) return UNINIT; if (i >= GPUS) return ARG; *h = &devs[i]; return OK; }
API int nvmlDeviceGetHandleByIndex(U i, H *h) { return nvmlDeviceGetHandleByIndex_v2(i, h); }
API int nvmlDeviceGetUUID(H h, char *o, U n) { GATE; char t[64]; snprintf(t, sizeof t, "GPU-00000000-0000-4000-8000-%012d", h->i); return put(o, n, t); }
API int nvmlDeviceGetHandleByUUID(const char *u, H *h) {
    char t[64];
    for (int i = 0; inited && i < GPUS; i++) { nvmlDeviceGetUUID(&devs[i], t, sizeof t); if (!strcmp(t, u)) { *h = &devs[i]; return OK; } }
    return inited ? NOTFOUND : UNINIT;
}
API int nvmlDeviceGetIndex(H h, U *o) { GATE; *o = h->i; return OK; }
API int nvmlDeviceGetMinorNumber(H h, U *o) { GATE; *o = h->i; return OK; }
API int nvmlDeviceGetName(H h, char *o, U n) { GATE; return put(o, n, "NVIDIA H200"); }
API int nvmlDeviceGetSerial(H h, char *o, U n) { GATE; char t[32]; snprintf(t, sizeof t, "16500%08d", h->i); return put(o, n, t); }
API int nvmlDeviceGetCudaComputeCapability(H h, int *a, int *b) { GATE; *a = 9; *b = 0; return OK; }
struct pci { char legacy[16]; U domain, bus, device, id, sub; char busId[32]; };
API int nvmlDeviceGetPciInfo_v3(H h, struct pci *p) {
    GATE;
    memset(p, 0, sizeof *p);
    p->bus = 0x10 + h->i;
    p->id = 0x233510de;
    snprintf(p->legacy, sizeof p->legacy, "0000:%02X:00.0", p->bus);
    snprintf(p->busId, sizeof p->busId, "00000000:%02X:00.0", p->bus);
    return OK;
}
API int nvmlDeviceGetPciInfo_v2(H h, struct pci *p) { return nvmlDeviceGetPciInfo_v3(h, p); }
API int nvmlDeviceGetPciInfo(H h, struct pci *p) { return nvmlDeviceGetPciInfo_v3(h, p); }

struct mem1 { L total, free, used; };
struct mem2 { U version; L total, reserved, free, used; };
static L held(H h) {
    L sum = 0;
    for (int n = 0; n < nprocs; n++) if (procs[n].gpu == h->i) sum += procs[n].mib * MIB;
    sum += wave(h, 60, 0, 4000) * MIB;
    return sum > TOTAL - RESERVED ? TOTAL - RESERVED : sum;
}
/* v1 counts the reserved part as used, v2 tells it apart: that is what the real library does */
API int nvmlDeviceGetMemoryInfo(H h, struct mem1 *m) { GATE; m->total = TOTAL; m->used = held(h) + RESERVED; m->free = TOTAL - m->used; return OK; }
API int nvmlDeviceGetMemoryInfo_v2(H h, struct mem2 *m) {
    GATE;
    if (m->version != 0x02000028) return VERMIS;
    m->total = TOTAL; m->reserved = RESERVED; m->used = held(h); m->free = TOTAL - m->used - m->reserved;
    return OK;
}
API int nvmlDeviceGetBAR1MemoryInfo(H h, struct mem1 *m) { GATE; m->total = 256ull << 30; m->used = 2 * MIB; m->free = m->total - m->used; return OK; }
struct util { U gpu, memory; };
API int nvmlDeviceGetUtilizationRates(H h, struct util *u) { GATE; u->gpu = wave(h, 13, 0, 100); u->memory = wave(h, 17, 0, 80); return OK; }
API int nvmlDeviceGetEncoderUtilization(H h, U *u, U *us) { GATE; *u = 0; *us = 167000; return OK; }
API int nvmlDeviceGetDecoderUtilization(H h, U *u, U *us) { GATE; *u = 0; *us = 167000; return OK; }
API int nvmlDeviceGetTemperature(H h, int s, U *t) { (void)s; GATE; *t = wave(h, 29, 35, 70); return OK; }
struct temp1 { U version; int sensor, t; };
API int nvmlDeviceGetTemperatureV(H h, struct temp1 *t) { GATE; if (t->version != 0x100000C) return VERMIS; t->t = wave(h, 29, 35, 70); return OK; }
API int nvmlDeviceGetFanSpeed(H h, U *o) { (void)o; GATE; return NOSUP; }
API int nvmlDeviceGetPowerUsage(H h, U *o) { GATE; *o = wave(h, 13, 90000, 690000); return OK; }
API int nvmlDeviceGetPowerManagementLimit(H h, U *o) { GATE; *o = 700000; return OK; }
API int nvmlDeviceGetEnforcedPowerLimit(H h, U *o) { GATE; *o = 700000; return OK; }
API int nvmlDeviceGetClockInfo(H h, int k, U *o) { GATE; *o = k == 2 ? 3201 : wave(h, 11, 345, 1980); return OK; }
API int nvmlDeviceGetMaxClockInfo(H h, int k, U *o) { GATE; *o = k == 2 ? 3201 : 1980; return OK; }
API int nvmlDeviceGetPerformanceState(H h, int *o) { GATE; *o = 0; return OK; }
API int nvmlDeviceGetPersistenceMode(H h, int *o) { GATE; *o = 1; return OK; }
API int nvmlDeviceGetDisplayActive(H h, int *o) { GATE; *o = 0; return OK; }
API int nvmlDeviceGetDisplayMode(H h, int *o) { GATE; *o = 0; return OK; }
API int nvmlDeviceGetComputeMode(H h, int *o) { GATE; *o = 0; return OK; }
API int nvmlDeviceGetDriverModel(H h, int *a, int *b) { (void)a; (void)b; GATE; return NOSUP; }
API int nvmlDeviceGetDriverModel_v2(H h, int *a, int *b) { return nvmlDeviceGetDriverModel(h, a, b); }
API int nvmlDeviceGetMigMode(H h, U *a, U *b) { GATE; *a = *b = 0; return OK; }
API int nvmlDeviceGetMaxMigDeviceCount(H h, U *o) { GATE; *o = 7; return OK; }
API int nvmlDeviceIsMigDeviceHandle(H h, U *o) { GATE; *o = 0; return OK; }
API int nvmlDeviceGetEccMode(H h, U *a, U *b) { GATE; *a = *b = 1; return OK; }
API int nvmlDeviceGetTotalEccErrors(H h, int a, int b, L *o) { (void)a; (void)b; GATE; *o = 0; return OK; }
API int nvmlDeviceGetMemoryErrorCounter(H h, int a, int b, int c, L *o) { (void)a; (void)b; (void)c; GATE; *o = 0; return OK; }
API int nvmlDeviceGetRemappedRows(H h, U *c, U *u, U *pending, U *failed) { GATE; *c = *u = *pending = *failed = 0; return OK; }
static int events;
API int nvmlEventSetCreate(void **set) { if (!inited) return UNINIT; *set = &events; return OK; }
API int nvmlEventSetFree(void *set) { (void)set; return inited ? OK : UNINIT; }
API int nvmlDeviceRegisterEvents(H h, L kinds, void *set) { (void)kinds; (void)set; GATE; return OK; }
API int nvmlEventSetWait_v2(void *set, void *data, U ms) { (void)set; (void)data; (void)ms; return inited ? TIMEOUT : UNINIT; }
API int nvmlEventSetWait(void *set, void *data, U ms) { return nvmlEventSetWait_v2(set, data, ms); }
API int nvmlDeviceGetPcieThroughput(H h, int c, U *o) { GATE; *o = wave(h, 7 + c, 0, 900000); return OK; }
API int nvmlDeviceGetCurrentClocksEventReasons(H h, L *o) { GATE; *o = wave(h, 23, 0, 100) > 90 ? 4 : 0; return OK; }
API int nvmlDeviceGetCurrentClocksThrottleReasons(H h, L *o) { return nvmlDeviceGetCurrentClocksEventReasons(h, o); }

struct proc { U pid; L mem; U gi, ci; };
API int nvmlDeviceGetComputeRunningProcesses_v3(H h, U *n, struct proc *out) {
    GATE;
    U have = 0, cap = *n;
    for (int k = 0; k < nprocs; k++) {
        if (procs[k].gpu != h->i) continue;
        if (out && have < cap) out[have] = (struct proc){ procs[k].pid, procs[k].mib * MIB, ~0u, ~0u };
        have++;
    }
    *n = have;
    return have > cap ? SMALL : OK;
}
API int nvmlDeviceGetComputeRunningProcesses_v2(H h, U *n, struct proc *o) { return nvmlDeviceGetComputeRunningProcesses_v3(h, n, o); }
API int nvmlDeviceGetGraphicsRunningProcesses_v3(H h, U *n, struct proc *o) { (void)o; GATE; *n = 0; return OK; }
API int nvmlDeviceGetGraphicsRunningProcesses_v2(H h, U *n, struct proc *o) { return nvmlDeviceGetGraphicsRunningProcesses_v3(h, n, o); }
API int nvmlDeviceGetMPSComputeRunningProcesses_v3(H h, U *n, struct proc *o) { (void)o; GATE; *n = 0; return OK; }
struct psample { U pid; L at; U sm, mem, enc, dec; };
API int nvmlDeviceGetProcessUtilization(H h, struct psample *out, U *n, L seen) {
    (void)seen;
    GATE;
    U have = 0, cap = *n;
    for (int k = 0; k < nprocs; k++) {
        if (procs[k].gpu != h->i) continue;
        if (out && have < cap) out[have] = (struct psample){ procs[k].pid, (L)time(NULL) * 1000000, wave(h, 13, 0, 100), wave(h, 17, 0, 80), 0, 0 };
        have++;
    }
    *n = have;
    return have > cap ? SMALL : OK;
}
/* by these two symbols nvitop tells which layout `struct proc` has: this one since driver 535.104 */
API int nvmlDeviceGetRunningProcessDetailList(H h, void *v) { (void)v; GATE; return NOSUP; }
API int nvmlDeviceGetFieldValues(H h, int n, void *v) { (void)n; (void)v; GATE; return NOSUP; }
API int nvmlDeviceGetConfComputeMemSizeInfo(H h, void *v) { (void)v; GATE; return NOSUP; }
