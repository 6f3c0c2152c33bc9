/* A library in NVML's place, for two GPUs: the test sets what each of them answers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPUS 2
#define SUCCESS 0
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define TIMEOUT 10
#define PLACES 3          /* for instances, of which the one in the middle is empty */
#define INSTANCE_IDS 5    /* the GPU instance at place 0 is number 5 */

int count = GPUS;
int lost[GPUS];           /* the error of each call for this GPU; 0: none */
int missing[GPUS];        /* the error of each optional value */
volatile int hangs[GPUS]; /* calls for this GPU do not return meanwhile */
volatile int driver_hangs;
int xids[GPUS];           /* the Xid errors that were not read yet */
int later_xids[GPUS];     /* those that come after them */
int xid_instances[GPUS] = {-1, -1}; /* the GPU instances that they name; -1: none */
int mig_mode[GPUS];
int instance_lost[PLACES]; /* the error of each call for this instance of any GPU */
unsigned int load = 87;
int initialised;

typedef struct { unsigned int gpu, memory; } Utilization;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } MemoryV2;
typedef struct { void *device; unsigned long long type, data; unsigned int instance, compute; } Event;
typedef struct { unsigned int pid; unsigned long long used; unsigned int instance, compute; } Process;

/* A handle is the number of the GPU from 1, and in the next byte that of the instance's place from 1, 0 for the GPU. */
static int of(void *device) { return (int)((long)device & 0xff) - 1; }
static int place(void *device) { return (int)((long)device >> 8) - 1; }

static int asked(void *device) {
    while (hangs[of(device)]) usleep(1000);
    if (lost[of(device)]) return lost[of(device)];
    return place(device) < 0 ? SUCCESS : instance_lost[place(device)];
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
    if (place(device) < 0) snprintf(text, length, "GPU-test-%d", of(device));
    else snprintf(text, length, "MIG-test-%d-%d", of(device), place(device));
    return asked(device);
}

int nvmlDeviceGetName(void *device, char *text, unsigned int length) {
    snprintf(text, length, "NVIDIA H100 80GB HBM3%s", place(device) < 0 ? "" : " MIG 1g.10gb");
    return asked(device);
}

int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) {
    memory->total = (place(device) < 0 ? 80ULL : 10ULL) << 30;
    memory->used = (place(device) < 0 ? 20ULL : 1ULL + place(device)) << 30;
    return optional(device);
}

int nvmlDeviceGetUtilizationRates(void *device, Utilization *rates) {
    rates->gpu = load;
    if (mig_mode[of(device)]) return NOT_SUPPORTED;
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

#ifdef MIG
int nvmlDeviceGetMigMode(void *device, unsigned int *current, unsigned int *pending) {
    *current = *pending = mig_mode[of(device)];
    return optional(device);
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned int *found) { *found = PLACES; return asked(device); }

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned int index, void **instance) {
    if (index == 1) return NOT_FOUND;
    *instance = (void *)(((long)index + 1) << 8 | (long)device);
    return instance_lost[index] == NOT_SUPPORTED ? SUCCESS : asked(*instance);
}

int nvmlDeviceGetGpuInstanceId(void *instance, unsigned int *id) {
    *id = INSTANCE_IDS + place(instance);
    return asked(instance);
}
#endif

/* Counters of GPUs since Hopper: a reading is the number of the instance. */
#ifdef GPM
#include <math.h>
#include <stdlib.h>

typedef struct { unsigned int version, supported; } Support;
typedef struct { unsigned int id, error; double value; void *words[3]; } Metric;
typedef struct { unsigned int version, number; int *before, *after; Metric metrics[1]; } Metrics;

int counted = 1;          /* whether the GPUs have counters */
int busy[PLACES];         /* in per cent; -1: no number */
int counters_fail;        /* the error of reading counters */
int metric_fails;         /* the error of the metric alone */
int readings;             /* in memory */

int nvmlGpmQueryDeviceSupport(void *device, Support *support) {
    support->supported = counted;
    return support->version == 1 ? asked(device) : NOT_SUPPORTED;
}

int nvmlGpmSampleAlloc(int **reading) { *reading = malloc(sizeof(int)); readings++; return SUCCESS; }
int nvmlGpmSampleFree(int *reading) { free(reading); readings--; return SUCCESS; }

int nvmlGpmMigSampleGet(void *device, unsigned int instance, int *reading) {
    if (place(device) >= 0) return NOT_SUPPORTED;
    *reading = instance;
    return counters_fail;
}

int nvmlGpmMetricsGet(Metrics *asked) {
    if (asked->version != 1 || asked->number != 1 || *asked->before != *asked->after) return NOT_SUPPORTED;
    if (asked->metrics[0].id != 1) return NOT_SUPPORTED;
    int percent = busy[*asked->after - INSTANCE_IDS];
    asked->metrics[0].value = percent < 0 ? NAN : percent;
    asked->metrics[0].error = metric_fails;
    return SUCCESS;
}
#endif

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *number, Process *processes) {
    int error = optional(device);
    if (error) return error;
    if (*number < 2) { *number = 2; return 7; }
    *number = 2;
    /* No process of the machine has such a high one. */
    processes[0] = (Process){.pid = 5000017 + 100 * (place(device) + 1), .used = 1ULL << 30};
    processes[1] = (Process){.pid = 5000018, .used = ~0ULL};
    return SUCCESS;
}

/* A set of events is which GPUs it watches, as bits: none gets the errors of another set's GPU. */
int nvmlEventSetCreate(void **events) { *events = calloc(1, sizeof(unsigned int)); return SUCCESS; }
int nvmlEventSetFree(void *events) { free(events); return SUCCESS; }

int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *events) {
    (void)types;
    int error = optional(device);
    if (!error) *(unsigned int *)events |= 1u << of(device);
    return error;
}

int nvmlEventSetWait_v2(void *events, Event *event, unsigned int milliseconds) {
    (void)milliseconds;
    for (int gpu = 0; gpu < GPUS; gpu++) {
        int *xid = xids[gpu] ? &xids[gpu] : &later_xids[gpu];
        if (!*xid || !(*(unsigned int *)events & 1u << gpu)) continue;
        event->data = *xid;
        event->instance = xid_instances[gpu];
        *xid = 0;
        return SUCCESS;
    }
    return TIMEOUT;
}
