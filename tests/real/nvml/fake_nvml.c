/* A stand-in libnvidia-ml.so.1 for tests on machines with no GPU.
 *
 * build: gcc -O2 -Wall -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 fake_nvml.c
 * use:   LD_LIBRARY_PATH=<dir> FAKE_NVML=<state file> some-program
 *
 * The state file is read again at every call, so a test can change it while a program runs.
 * One "key=value" a line; "#" starts a comment line. Keys:
 *   init=N          what nvmlInit answers (0 ok, 9 driver not loaded, 18 version mismatch ...)
 *   driver=570.1    nvml=12.570.1    cuda=13000    delay_ms=0
 *   I.name= I.uuid= I.bus= I.total= I.used= I.reserved= (bytes) I.util= I.memutil= (percent)
 *   I.temp= (C) I.power= I.limit= (milliwatt) I.fan= (percent) I.cc=9.0 I.smclock= I.memclock= (MHz)
 *   I.lost=1        every call on GPU I answers 15 (GPU is lost)
 *   I.unsupported=temp,power,fan,util,mem,procs  those calls answer 3 (not supported)
 *   I.code.WHAT=N   the calls of one kind answer N: mem2 (memory v2 alone), mem, temp, util, power, ecc, ...
 *   I.handle=N      no handle is given for GPU I: the answer is N
 *   code.count=N code.driver=N code.cuda=N  those calls answer N
 *   crash=WHAT      the process ends by SIGSEGV in that call, as a bug of the driver does; `init` too
 *   hang=WHAT       that call does not come back
 *   I.mig=UUID,...  GPU I is in MIG mode and has these slices, with a free place between them
 *   epoch=N         a driver restart: when N differs from what nvmlInit saw, every call answers 1
 *   I.xid=CODE I.xids=N   N Xids happened so far, all of this code; those after registration are told
 *   I.then=CODE     the last of them has this code
 *   I.pending= I.failed=  row remapping
 *   proc=I,PID,BYTES   a compute process on GPU I (any number of lines); BYTES -1 = not available
 *   log=FILE        every call is appended to FILE: "call what index"
 * GPUs are 0..n-1 for every I that has a name. Struct layouts are facts of the NVML ABI.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int R;
typedef struct dev *H;
enum { OK = 0, UNINIT = 1, ARG = 2, NOSUP = 3, NOTFOUND = 6, SMALL = 7, LOST = 15, VERMIS = 25 };
#define MAXG 16
#define API __attribute__((visibility("default")))

struct dev { int index; };
static struct dev devs[MAXG];
static int inited;
static int epoch;

static char *slurp(void) {
    const char *p = getenv("FAKE_NVML");
    FILE *f = fopen(p ? p : "/etc/fake-nvml.conf", "r");
    if (!f) return calloc(1, 1);
    char *b = malloc(65537);
    size_t n = fread(b, 1, 65536, f);
    fclose(f);
    b[n] = 0;
    return b;
}
static int find(const char *key, char *out, size_t cap) {
    char *b = slurp(), *save = NULL;
    size_t k = strlen(key);
    int hit = 0;
    for (char *l = strtok_r(b, "\r\n", &save); l; l = strtok_r(NULL, "\r\n", &save))
        if (*l != '#' && !strncmp(l, key, k) && l[k] == '=') { snprintf(out, cap, "%s", l + k + 1); hit = 1; }
    free(b);
    return hit;
}
static void nap(void) {
    char v[32];
    if (find("delay_ms", v, sizeof v)) usleep(atoi(v) * 1000);
}
static int dstr(H h, const char *f, char *out, size_t cap) {
    char k[64];
    snprintf(k, sizeof k, "%d.%s", h->index, f);
    return find(k, out, cap);
}
static unsigned long long num(H h, const char *f, unsigned long long dflt) {
    char v[64];
    return dstr(h, f, v, sizeof v) ? strtoull(v, NULL, 0) : dflt;
}
static int count(void) {
    char v[256];
    int n = 0;
    for (; n < MAXG; n++) { struct dev d = { n }; if (!dstr(&d, "name", v, sizeof v)) break; }
    return n;
}
static int now_epoch(void) { char v[32]; return find("epoch", v, sizeof v) ? atoi(v) : 0; }
static int alive(void) { return inited && epoch == now_epoch(); }
static void note(const char *what, int index) {
    char path[256];
    FILE *f = find("log", path, sizeof path) ? fopen(path, "a") : NULL;
    if (!f) return;
    fprintf(f, "%s %d\n", what, index);
    fclose(f);
}
static int named(const char *key, const char *what) {
    char v[32];
    return what && find(key, v, sizeof v) && !strcmp(v, what);
}
static R trouble(const char *what) {
    char k[48], v[32];
    if (named("crash", what)) raise(SIGSEGV);
    while (named("hang", what)) usleep(20000);
    snprintf(k, sizeof k, "code.%s", what);
    return find(k, v, sizeof v) ? atoi(v) : OK;
}
/* common gate: initialised, sane handle, not lost, not switched off */
static R gate(H h, const char *what) {
    char v[256], k[48];
    nap();
    if (!alive()) return UNINIT;
    if (h < devs || h >= devs + MAXG || h->index >= count()) return ARG;
    if (what) note(what, h->index);
    if (what) trouble(what);
    if (num(h, "lost", 0)) return LOST;
    snprintf(k, sizeof k, "code.%s", what ? what : "any");
    if (num(h, k, 0)) return num(h, k, 0);
    if (what && dstr(h, "unsupported", v, sizeof v)) {
        char *s = NULL;
        for (char *t = strtok_r(v, ",", &s); t; t = strtok_r(NULL, ",", &s)) if (!strcmp(t, what)) return NOSUP;
    }
    return OK;
}
#define GATE(w) do { R r_ = gate(h, w); if (r_) return r_; } while (0)

static R init(void) {
    char v[32];
    nap();
    note("init", -1);
    trouble("init");
    if (find("init", v, sizeof v) && atoi(v)) return atoi(v);
    epoch = now_epoch();
    for (int i = 0; i < MAXG; i++) devs[i].index = i;
    inited++;
    return OK;
}
API R nvmlInit(void) { return init(); }
API R nvmlInit_v2(void) { return init(); }
API R nvmlInitWithFlags(unsigned f) { (void)f; return init(); }
API R nvmlShutdown(void) { if (!inited) return UNINIT; inited--; return OK; }
API const char *nvmlErrorString(R r) {
    switch (r) {
    case OK: return "Success";
    case UNINIT: return "Uninitialized";
    case ARG: return "Invalid Argument";
    case NOSUP: return "Not Supported";
    case NOTFOUND: return "Not Found";
    case SMALL: return "Insufficient Size";
    case 10: return "Timeout";
    case 9: return "Driver Not Loaded";
    case LOST: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}
static R text(const char *key, const char *dflt, char *out, unsigned cap) {
    char v[128];
    snprintf(out, cap, "%s", find(key, v, sizeof v) ? v : dflt);
    return OK;
}
API R nvmlSystemGetDriverVersion(char *o, unsigned n) { R r = trouble("driver"); return r ? r : inited ? text("driver", "000.00", o, n) : UNINIT; }
API R nvmlSystemGetNVMLVersion(char *o, unsigned n) { return inited ? text("nvml", "12.000.00", o, n) : UNINIT; }
API R nvmlSystemGetCudaDriverVersion(int *o) { char v[32]; R r = trouble("cuda"); if (r) return r; *o = find("cuda", v, sizeof v) ? atoi(v) : 12000; return OK; }
API R nvmlSystemGetCudaDriverVersion_v2(int *o) { return nvmlSystemGetCudaDriverVersion(o); }

API R nvmlDeviceGetCount_v2(unsigned *n) { nap(); R r = trouble("count"); if (r) return r; if (!alive()) return UNINIT; *n = count(); return OK; }
API R nvmlDeviceGetCount(unsigned *n) { return nvmlDeviceGetCount_v2(n); }
API R nvmlDeviceGetHandleByIndex_v2(unsigned i, H *h) {
    if (!alive()) return UNINIT;
    if ((int)i >= count()) return ARG;
    *h = &devs[i];
    return num(*h, "lost", 0) ? LOST : num(*h, "handle", OK);
}
API R nvmlDeviceGetHandleByIndex(unsigned i, H *h) { return nvmlDeviceGetHandleByIndex_v2(i, h); }
static R by(const char *field, const char *want, H *h) {
    char v[128];
    if (!alive()) return UNINIT;
    for (int i = 0; i < count(); i++)
        if (dstr(&devs[i], field, v, sizeof v) && !strcasecmp(v, want)) { *h = &devs[i]; return OK; }
    return NOTFOUND;
}
API R nvmlDeviceGetHandleByUUID(const char *u, H *h) { return by("uuid", u, h); }
API R nvmlDeviceGetHandleByPciBusId_v2(const char *b, H *h) { return by("bus", b, h); }
API R nvmlDeviceGetHandleByPciBusId(const char *b, H *h) { return by("bus", b, h); }
API R nvmlDeviceGetIndex(H h, unsigned *i) { GATE(NULL); *i = h->index; return OK; }
API R nvmlDeviceGetMinorNumber(H h, unsigned *i) { GATE(NULL); *i = h->index; return OK; }
API R nvmlDeviceGetName(H h, char *o, unsigned n) { GATE("name"); char v[96] = "GPU"; dstr(h, "name", v, sizeof v); snprintf(o, n, "%s", v); return OK; }
/* a slice: its index holds the GPU's and its own place; places with an odd number stay empty */
static struct dev slices[MAXG * 16];
static int slice(H h, char *out, size_t cap) {
    char v[512], *save = NULL;
    struct dev parent = { (int)(h - slices) / 16 };
    int n = (int)(h - slices) % 16;
    if (n % 2 || !dstr(&parent, "mig", v, sizeof v)) return 0;
    char *t = strtok_r(v, ",", &save);
    for (int i = 0; t && i < n / 2; i++) t = strtok_r(NULL, ",", &save);
    if (t && out) snprintf(out, cap, "%s", t);
    return t != NULL;
}
API R nvmlDeviceGetUUID(H h, char *o, unsigned n) {
    if (h >= slices && h < slices + MAXG * 16) return slice(h, o, n) ? OK : ARG;
    GATE("uuid");
    char v[96] = "GPU-0";
    dstr(h, "uuid", v, sizeof v);
    snprintf(o, n, "%s", v);
    return OK;
}

struct pci3 { char legacy[16]; unsigned domain, bus, device, id, sub; char busId[32]; };
API R nvmlDeviceGetPciInfo_v3(H h, struct pci3 *p) {
    GATE("bus");
    char v[32] = "00000000:01:00.0";
    dstr(h, "bus", v, sizeof v);
    memset(p, 0, sizeof *p);
    snprintf(p->busId, sizeof p->busId, "%s", v);
    sscanf(v, "%x:%x:%x", &p->domain, &p->bus, &p->device);
    snprintf(p->legacy, sizeof p->legacy, "%04x:%02x:%02x.0", p->domain & 0xffff, p->bus & 0xff, p->device & 0xff);
    p->id = 0x233510de;
    return OK;
}
API R nvmlDeviceGetPciInfo_v2(H h, struct pci3 *p) { return nvmlDeviceGetPciInfo_v3(h, p); }

struct mem1 { unsigned long long total, free, used; };
struct mem2 { unsigned version; unsigned long long total, reserved, free, used; };
/* v1 counts the reserved part as used, v2 tells it apart: that is what the real library does */
API R nvmlDeviceGetMemoryInfo(H h, struct mem1 *m) {
    GATE("mem");
    unsigned long long t = num(h, "total", 0), u = num(h, "used", 0) + num(h, "reserved", 0);
    m->total = t; m->used = u > t ? t : u; m->free = t - m->used;
    return OK;
}
API R nvmlDeviceGetMemoryInfo_v2(H h, struct mem2 *m) {
    GATE("mem");
    GATE("mem2");
    if (m->version != 0x02000028) return VERMIS;
    unsigned long long t = num(h, "total", 0), r = num(h, "reserved", 0), u = num(h, "used", 0);
    m->total = t; m->reserved = r; m->used = u; m->free = t > u + r ? t - u - r : 0;
    return OK;
}
API R nvmlDeviceGetBAR1MemoryInfo(H h, struct mem1 *m) { GATE("bar1"); m->total = m->free = 256ull << 20; m->used = 0; return OK; }
struct util { unsigned gpu, memory; };
API R nvmlDeviceGetUtilizationRates(H h, struct util *u) { GATE("util"); u->gpu = num(h, "util", 0); u->memory = num(h, "memutil", 0); return OK; }
API R nvmlDeviceGetEncoderUtilization(H h, unsigned *u, unsigned *us) { GATE("enc"); *u = 0; *us = 100000; return OK; }
API R nvmlDeviceGetDecoderUtilization(H h, unsigned *u, unsigned *us) { GATE("enc"); *u = 0; *us = 100000; return OK; }
API R nvmlDeviceGetTemperature(H h, int s, unsigned *t) { (void)s; GATE("temp"); *t = num(h, "temp", 30); return OK; }
struct temp1 { unsigned version; int sensor; int t; };
API R nvmlDeviceGetTemperatureV(H h, struct temp1 *t) { GATE("temp"); if (t->version != 0x100000C) return VERMIS; t->t = num(h, "temp", 30); return OK; }
API R nvmlDeviceGetTemperatureThreshold(H h, int k, unsigned *t) { GATE("temp"); *t = k ? 87 : 92; return OK; }
API R nvmlDeviceGetFanSpeed(H h, unsigned *s) { GATE("fan"); char v[8]; if (!dstr(h, "fan", v, sizeof v)) return NOSUP; *s = atoi(v); return OK; }
API R nvmlDeviceGetPowerUsage(H h, unsigned *p) { GATE("power"); *p = num(h, "power", 0); return OK; }
API R nvmlDeviceGetPowerManagementLimit(H h, unsigned *p) { GATE("power"); *p = num(h, "limit", 700000); return OK; }
API R nvmlDeviceGetEnforcedPowerLimit(H h, unsigned *p) { return nvmlDeviceGetPowerManagementLimit(h, p); }
API R nvmlDeviceGetClockInfo(H h, int k, unsigned *c) { GATE("clock"); *c = num(h, k == 2 ? "memclock" : "smclock", 0); return OK; }
API R nvmlDeviceGetMaxClockInfo(H h, int k, unsigned *c) { return nvmlDeviceGetClockInfo(h, k, c); }
API R nvmlDeviceGetPerformanceState(H h, int *p) { GATE(NULL); *p = 0; return OK; }
API R nvmlDeviceGetPersistenceMode(H h, int *p) { GATE(NULL); *p = 1; return OK; }
API R nvmlDeviceGetDisplayActive(H h, int *p) { GATE(NULL); *p = 0; return OK; }
API R nvmlDeviceGetDisplayMode(H h, int *p) { GATE(NULL); *p = 0; return OK; }
API R nvmlDeviceGetComputeMode(H h, int *p) { GATE(NULL); *p = 0; return OK; }
API R nvmlDeviceGetMigMode(H h, unsigned *c, unsigned *p) {
    GATE("mig");
    char v[512];
    *c = *p = dstr(h, "mig", v, sizeof v);
    return OK;
}
API R nvmlDeviceGetMaxMigDeviceCount(H h, unsigned *c) { GATE("mig"); *c = 16; return OK; }
API R nvmlDeviceGetMigDeviceHandleByIndex(H h, unsigned i, H *out) {
    GATE("mig");
    if (i >= 16) return ARG;
    *out = &slices[h->index * 16 + i];
    return slice(*out, NULL, 0) ? OK : NOTFOUND;
}
API R nvmlDeviceIsMigDeviceHandle(H h, unsigned *c) { GATE(NULL); *c = 0; return OK; }
API R nvmlDeviceGetCudaComputeCapability(H h, int *a, int *b) { GATE(NULL); char v[16] = "9.0"; dstr(h, "cc", v, sizeof v); return sscanf(v, "%d.%d", a, b) == 2 ? OK : NOSUP; }

struct proc { unsigned pid; unsigned long long mem; unsigned gi, ci; };
API R nvmlDeviceGetComputeRunningProcesses_v3(H h, unsigned *n, struct proc *out) {
    GATE("procs");
    char *b = slurp(), *save = NULL;
    unsigned have = 0, cap = *n;
    for (char *l = strtok_r(b, "\r\n", &save); l; l = strtok_r(NULL, "\r\n", &save)) {
        int i; unsigned pid; long long m;
        if (sscanf(l, "proc=%d,%u,%lld", &i, &pid, &m) != 3 || i != h->index) continue;
        if (out && have < cap) out[have] = (struct proc){ pid, (unsigned long long)m, 0xffffffffu, 0xffffffffu };
        have++;
    }
    free(b);
    *n = have;
    return have > cap ? SMALL : OK;
}
API R nvmlDeviceGetComputeRunningProcesses_v2(H h, unsigned *n, struct proc *o) { return nvmlDeviceGetComputeRunningProcesses_v3(h, n, o); }
API R nvmlDeviceGetGraphicsRunningProcesses_v3(H h, unsigned *n, struct proc *o) { (void)o; GATE("procs"); *n = 0; return OK; }
API R nvmlDeviceGetGraphicsRunningProcesses_v2(H h, unsigned *n, struct proc *o) { return nvmlDeviceGetGraphicsRunningProcesses_v3(h, n, o); }
API R nvmlDeviceGetMPSComputeRunningProcesses_v3(H h, unsigned *n, struct proc *o) { (void)o; GATE("procs"); *n = 0; return OK; }
API R nvmlSystemGetProcessName(unsigned pid, char *o, unsigned n) {
    char p[64];
    snprintf(p, sizeof p, "/proc/%u/comm", pid);
    FILE *f = fopen(p, "r");
    if (!f) return NOTFOUND;
    size_t k = fread(o, 1, n - 1, f);
    fclose(f);
    o[k] = 0;
    o[strcspn(o, "\n")] = 0;
    return OK;
}

/* asked for by nvitop; a data-centre GPU on Linux answers these so */
API R nvmlDeviceGetDriverModel(H h, unsigned *c, unsigned *p) { (void)c; (void)p; GATE(NULL); return NOSUP; }
API R nvmlDeviceGetDriverModel_v2(H h, unsigned *c, unsigned *p) { return nvmlDeviceGetDriverModel(h, c, p); }
API R nvmlDeviceGetTotalEccErrors(H h, int a, int b, unsigned long long *n) { (void)a; (void)b; GATE("ecc"); *n = num(h, "ecc", 0); return OK; }
API R nvmlDeviceGetEccMode(H h, unsigned *c, unsigned *p) { GATE("ecc"); *c = *p = 1; return OK; }
API R nvmlDeviceGetPcieThroughput(H h, int k, unsigned *v) { GATE("pcie"); *v = num(h, k ? "rx" : "tx", 0); return OK; }
/* as an older library: nvmlDeviceGetCurrentClocksEventReasons is not there */
API R nvmlDeviceGetCurrentClocksThrottleReasons(H h, unsigned long long *m) { GATE("throttle"); *m = num(h, "throttle", 0); return OK; }
API R nvmlDeviceGetSerial(H h, char *o, unsigned n) { GATE(NULL); snprintf(o, n, "16500%08d", h->index); return OK; }
struct psample { unsigned pid; unsigned long long ts; unsigned sm, mem, enc, dec; };
API R nvmlDeviceGetProcessUtilization(H h, struct psample *o, unsigned *n, unsigned long long seen) { (void)o; (void)seen; GATE("procs"); *n = 0; return NOTFOUND; }
API R nvmlDeviceGetFieldValues(H h, int n, void *v) { (void)n; (void)v; GATE(NULL); return NOSUP; }
API R nvmlDeviceGetConfComputeMemSizeInfo(H h, void *v) { (void)v; GATE(NULL); return NOSUP; }

API R nvmlDeviceGetRemappedRows(H h, unsigned *c, unsigned *u, unsigned *p, unsigned *f) {
    GATE("remap");
    *c = *u = 0;
    *p = num(h, "pending", 0);
    *f = num(h, "failed", 0);
    return OK;
}
struct set { H h; unsigned seen; };
struct event { H h; unsigned long long type, data; unsigned gi, ci; };
API R nvmlEventSetCreate(struct set **s) { if (!alive()) return UNINIT; *s = calloc(1, sizeof **s); return OK; }
API R nvmlEventSetFree(struct set *s) { free(s); return OK; }
API R nvmlDeviceRegisterEvents(H h, unsigned long long types, struct set *s) {
    GATE("events");
    if (types != 8) return NOSUP;
    s->h = h;
    s->seen = num(h, "xids", 0);
    return OK;
}
API R nvmlEventSetWait_v2(struct set *s, struct event *e, unsigned ms) {
    (void)ms;
    H h = s->h;
    if (!alive()) return UNINIT;
    if (s->seen >= num(h, "xids", 0)) return num(h, "lost", 0) ? LOST : 10;
    s->seen++;
    long code = num(h, s->seen < num(h, "xids", 0) ? "xid" : "then", num(h, "xid", 0));
    *e = (struct event){ h, 8, code, 0xffffffffu, 0xffffffffu };
    return OK;
}
