/* A library in NVML's place, for two GPUs: the test sets what each of them answers. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define GPUS 2
#define SUCCESS 0
#define NOT_SUPPORTED 3
#define TIMEOUT 10

int count = GPUS;
int lost[GPUS];           /* the error of each call for this GPU; 0: none */
int missing[GPUS];        /* the error of each optional value */
volatile int hangs[GPUS]; /* calls for this GPU do not return meanwhile */
volatile int driver_hangs;
int xids[GPUS];           /* the Xid errors that were not read yet */
unsigned int load = 87;
int initialised;

typedef struct { unsigned int gpu, memory; } Utilization;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } MemoryV2;
typedef struct { void *device; unsigned long long type, data; unsigned int instance, compute; } Event;
typedef struct { unsigned int pid; unsigned long long used; unsigned int instance, compute; } Process;

static int of(void *device) { return (int)(long)device - 1; }

static int asked(void *device) {
    while (hangs[of(device)]) usleep(1000);
    return lost[of(device)];
}

static int optional(void *device) {
    int error = asked(device);
    return error ? error : missing[of(device)];
}

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    while (driver_hangs) usleep(1000);
    initialised++;
    return SUCCESS;
}

int nvmlShutdown(void) { initialised--; return SUCCESS; }
const char *nvmlErrorString(int error) { (void)error; return "an error of the test"; }

int nvmlDeviceGetCount_v2(unsigned int *found) {
    while (driver_hangs) usleep(1000);
    *found = count;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
    *device = (void *)(long)(index + 1);
    return asked(*device);
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned int length) {
    snprintf(text, length, "GPU-test-%d", of(device));
    return asked(device);
}

int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) {
    memory->total = 80ULL << 30;
    memory->used = 20ULL << 30;
    return optional(device);
}

int nvmlDeviceGetUtilizationRates(void *device, Utilization *rates) {
    rates->gpu = load;
    return optional(device);
}

int nvmlDeviceGetPowerUsage(void *device, unsigned int *milliwatts) { *milliwatts = 312500; return optional(device); }

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned int *degrees) {
    (void)sensor;
    *degrees = 61;
    return optional(device);
}

/* An older library does not have every function. */
#ifdef HEALTH
int ecc[GPUS];
int clocks[GPUS] = {1980, 1980};
int throttle_reasons[GPUS];

int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *errors) {
    (void)type; (void)counter;
    *errors = ecc[of(device)];
    return optional(device);
}

int nvmlDeviceGetClockInfo(void *device, int type, unsigned int *mhz) {
    (void)type;
    *mhz = clocks[of(device)];
    return optional(device);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
    *reasons = throttle_reasons[of(device)];
    return optional(device);
}
#endif

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *number, Process *processes) {
    int error = optional(device);
    if (error) return error;
    if (*number < 2) { *number = 2; return 7; }
    *number = 2;
    processes[0] = (Process){.pid = 17, .used = 1ULL << 30};
    processes[1] = (Process){.pid = 18, .used = ~0ULL};
    return SUCCESS;
}

int nvmlEventSetCreate(void **events) { *events = NULL; return SUCCESS; }
int nvmlEventSetFree(void *events) { (void)events; return SUCCESS; }

static void *registered;

int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *events) {
    (void)types; (void)events;
    registered = device;
    return optional(device);
}

int nvmlEventSetWait_v2(void *events, Event *event, unsigned int milliseconds) {
    (void)events; (void)milliseconds;
    for (int gpu = 0; gpu < GPUS; gpu++)
        if (xids[gpu]) {
            event->data = xids[gpu];
            xids[gpu] = 0;
            return SUCCESS;
        }
    return TIMEOUT;
}
