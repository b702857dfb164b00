/* Prints the UUID of every GPU that NVML shows, one a line. Linked with the stand-in, run in a container. */
#include <stdio.h>

int nvmlInit_v2(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length);

int main(void) {
    unsigned count = 0;
    if (nvmlInit_v2() != 0 || nvmlDeviceGetCount_v2(&count) != 0) return 1;
    for (unsigned i = 0; i < count; i++) {
        void *device;
        char uuid[96];
        if (nvmlDeviceGetHandleByIndex_v2(i, &device) != 0) return 1;
        if (nvmlDeviceGetUUID(device, uuid, sizeof uuid) != 0) return 1;
        puts(uuid);
    }
    return 0;
}
