/* A libnvidia-ml.so.1 for tests: it returns what the file named by GAS_FAKE_NVML says, read anew at every call.
 *
 * Each line is "KEY VALUE" about the library, or "card KEY=VALUE ..." about one card:
 *
 *     init 9                      nvmlInitWithFlags returns this error;  count 999  nvmlDeviceGetCount does
 *     event GPU-... 79 [GI CI]    one Xid of a card, or of an instance of it, returned once
 *     near GPU-... GPU-...        two cards that share a PCIe switch
 *     card uuid=GPU-... minor=0 bus=16 id=590352606 name=NVIDIA_H100 total=85899345920 reserved=1073741824
 *          [mig=1] [sms=132] [peer=17] [switch=1] [error=15] [hang=1] [v1=1]
 *     instance of=GPU-... uuid=MIG-... gi=1 ci=0 sms=60 name=NVIDIA_H100_MIG_3g.40gb total=... reserved=...
 *     process of=UUID pid=7 memory=1048576 [sm=50 at=MICROSECONDS]
 *
 * error  every call about the card returns it;  hang  nvmlDeviceGetName never returns while it is set
 * peer   bus of the card at the other end of NVLink 0;  switch  NVLink 0 leads to an NVSwitch
 * v1     the driver does not know nvmlDeviceGetMemoryInfo_v2;  unified  it does not know the card's memory
 * recovery  the driver's recovery action plus one;  wsl  there is no minor number
 * sms    multiprocessors that a card gives to its largest instance, or that an instance has
 *
 * A handle is the number of the card plus one, and 1001 and so on for instances.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SUCCESS 0
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define INSUFFICIENT_SIZE 7
#define FIRST_INSTANCE 1000
#define TIMEOUT 10
#define MOST 64

typedef struct {
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} pci_info;

typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { uintptr_t device; unsigned long long type, data; unsigned int gi, ci; } event_data;
typedef struct { unsigned int id, p2p, slices, instances, sms, counts[5]; unsigned long long memory; } profile_info;
typedef struct { unsigned int sms, counts[7]; unsigned long long memory; } attributes;
typedef struct { unsigned int pid; unsigned long long memory; unsigned int gi, ci; } process_info;
typedef struct { unsigned int pid; unsigned long long at; unsigned int sm, mem, enc, dec; } process_sample;

static char lines[MOST][512];

static int load(const char *kind, char found[MOST][512]) {
    const char *path = getenv("GAS_FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512];
    int count = 0;
    if (!file) return 0;
    while (count < MOST && fgets(line, sizeof line, file))
        if (!strncmp(line, kind, strlen(kind)) && line[strlen(kind)] == ' ') {
            line[strcspn(line, "\n")] = ' ';
            strcpy(found[count++], line);
        }
    fclose(file);
    return count;
}

/* Copy the value of a key in a line; return whether it has one. */
static int value_in(const char *line, const char *key, char *text, size_t size) {
    char wanted[40];
    snprintf(wanted, sizeof wanted, " %s=", key);
    const char *at = strstr(line, wanted);
    if (!at) return 0;
    at += strlen(wanted);
    snprintf(text, size, "%.*s", (int)strcspn(at, " "), at);
    return 1;
}

/* The same for the line of a card or an instance. */
static int value(uintptr_t device, const char *key, char *text, size_t size) {
    char found[MOST][512];
    int is_instance = device > FIRST_INSTANCE, index = (int)device - 1 - is_instance * FIRST_INSTANCE;
    return index >= 0 && index < load(is_instance ? "instance" : "card", found) && value_in(found[index], key, text, size);
}

static unsigned long long number_in(const char *line, const char *key) {
    char text[40];
    return value_in(line, key, text, sizeof text) ? strtoull(text, NULL, 10) : 0;
}

/* Collect the lines of a kind that are about a device; return how many there are. */
static int lines_of(uintptr_t device, const char *kind, char found[MOST][512], int numbers[MOST]) {
    char all[MOST][512], uuid[96], of[96];
    int count = load(kind, all), kept = 0;
    if (!value(device, "uuid", uuid, sizeof uuid)) return 0;
    for (int index = 0; index < count; index++)
        if (value_in(all[index], "of", of, sizeof of) && !strcmp(of, uuid)) {
            numbers[kept] = index;
            strcpy(found[kept++], all[index]);
        }
    return kept;
}

static unsigned long long number(uintptr_t device, const char *key) {
    char text[40];
    return value(device, key, text, sizeof text) ? strtoull(text, NULL, 10) : 0;
}

#define FAIL_AS_TOLD(device) do { int told = (int)number(device, "error"); if (told) return told; } while (0)

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    return load("init", lines) ? atoi(lines[0] + 5) : SUCCESS;
}
int nvmlShutdown(void) { return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned int *count) {
    if (load("count", lines)) return atoi(lines[0] + 6);
    *count = load("card", lines);
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, uintptr_t *device) {
    char found[MOST][512];
    if ((int)index >= load("card", found)) return INVALID_ARGUMENT;
    *device = index + 1;
    FAIL_AS_TOLD(*device);
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, uintptr_t *device) {
    char found[MOST][512], own[96];
    int count = load("card", found);
    for (int index = 0; index < count; index++)
        if (value(index + 1, "uuid", own, sizeof own) && !strcmp(own, uuid)) { *device = index + 1; return SUCCESS; }
    count = load("instance", found);
    for (int index = 0; index < count; index++) {
        *device = FIRST_INSTANCE + 1 + index;
        if (value(*device, "uuid", own, sizeof own) && !strcmp(own, uuid)) return SUCCESS;
    }
    return NOT_FOUND;
}

int nvmlDeviceGetPciInfo_v3(uintptr_t device, pci_info *info) {
    FAIL_AS_TOLD(device);
    memset(info, 0, sizeof *info);
    info->bus = (unsigned int)number(device, "bus");
    info->pciDeviceId = (unsigned int)number(device, "id");
    snprintf(info->busId, sizeof info->busId, "%08X:%02X:%02X.0", info->domain, info->bus, info->device);
    return SUCCESS;
}

int nvmlDeviceGetUUID(uintptr_t device, char *uuid, unsigned int length) {
    return value(device, "uuid", uuid, length) ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetMinorNumber(uintptr_t device, unsigned int *minor) {
    *minor = (unsigned int)number(device, "minor");
    return number(device, "wsl") ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetName(uintptr_t device, char *name, unsigned int length) {
    while (number(device, "hang")) usleep(20000);
    return value(device, "name", name, length) ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetMemoryInfo(uintptr_t device, memory_v1 *memory) {
    memset(memory, 0, sizeof *memory);
    memory->total = number(device, "total") - number(device, "reserved");
    return number(device, "unified") ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(uintptr_t device, memory_v2 *memory) {
    if (number(device, "v1") || number(device, "unified")) return NOT_SUPPORTED;
    memory->total = number(device, "total");
    memory->reserved = number(device, "reserved");
    memory->free = memory->used = 0;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(uintptr_t device, unsigned int *current, unsigned int *pending) {
    char text[8];
    if (!value(device, "mig", text, sizeof text)) return NOT_SUPPORTED;
    *current = *pending = (unsigned int)atoi(text);
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(uintptr_t device, unsigned int *count) { (void)device; *count = 7; return SUCCESS; }

int nvmlDeviceGetMigDeviceHandleByIndex(uintptr_t device, unsigned int index, uintptr_t *instance) {
    char found[MOST][512];
    int numbers[MOST];
    if ((int)index >= lines_of(device, "instance", found, numbers)) return NOT_FOUND;
    *instance = FIRST_INSTANCE + 1 + numbers[index];
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(uintptr_t device, unsigned int *id) { *id = (unsigned int)number(device, "gi"); return SUCCESS; }
int nvmlDeviceGetComputeInstanceId(uintptr_t device, unsigned int *id) { *id = (unsigned int)number(device, "ci"); return SUCCESS; }

int nvmlDeviceGetAttributes_v2(uintptr_t device, attributes *of) {
    memset(of, 0, sizeof *of);
    of->sms = (unsigned int)number(device, "sms");
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceProfileInfo(uintptr_t device, unsigned int profile, profile_info *info) {
    if (profile != 4) return NOT_SUPPORTED;
    memset(info, 0, sizeof *info);
    info->sms = (unsigned int)number(device, "sms");
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(uintptr_t device, unsigned int *count, process_info *infos) {
    char found[MOST][512];
    int numbers[MOST], kept = lines_of(device, "process", found, numbers);
    if (!infos) { *count = (unsigned int)kept; return kept ? INSUFFICIENT_SIZE : SUCCESS; }
    *count = (unsigned int)kept;
    for (int index = 0; index < kept; index++)
        infos[index] = (process_info){(unsigned int)number_in(found[index], "pid"), number_in(found[index], "memory"), 0, 0};
    return SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(uintptr_t device, unsigned int *count, process_info *infos) {
    (void)device, (void)infos;
    *count = 0;
    return SUCCESS;
}

int nvmlDeviceGetProcessUtilization(uintptr_t device, process_sample *samples, unsigned int *count, unsigned long long since) {
    char found[MOST][512];
    int numbers[MOST], kept = lines_of(device, "process", found, numbers), recent = 0;
    if (device > FIRST_INSTANCE) return NOT_SUPPORTED;
    for (int index = 0; index < kept; index++) {
        unsigned long long at = number_in(found[index], "at");
        if (at <= since) continue;
        if (samples) samples[recent] = (process_sample){(unsigned int)number_in(found[index], "pid"), at,
                                                        (unsigned int)number_in(found[index], "sm"), 0, 0, 0};
        recent++;
    }
    *count = (unsigned int)recent;
    return samples || !recent ? (recent ? SUCCESS : NOT_FOUND) : INSUFFICIENT_SIZE;
}

int nvmlDeviceGetNvLinkState(uintptr_t device, unsigned int link, unsigned int *active) {
    if (link > 1) return INVALID_ARGUMENT;
    *active = link == 0 && (number(device, "peer") || number(device, "switch"));
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(uintptr_t device, unsigned int link, unsigned int *type) {
    (void)link;
    *type = number(device, "switch") ? 2 : 0;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(uintptr_t device, unsigned int link, pci_info *info) {
    (void)link;
    memset(info, 0, sizeof *info);
    info->bus = (unsigned int)number(device, "peer");
    return SUCCESS;
}

int nvmlDeviceGetTopologyCommonAncestor(uintptr_t one, uintptr_t other, unsigned int *level) {
    char found[MOST][512], first[96], second[96];
    int count = load("near", found);
    *level = 50;
    if (!value(one, "uuid", first, sizeof first) || !value(other, "uuid", second, sizeof second)) return INVALID_ARGUMENT;
    for (int index = 0; index < count; index++)
        if (strstr(found[index], first) && strstr(found[index], second)) *level = 20;
    return SUCCESS;
}

static uintptr_t device_of_set[MOST];

int nvmlEventSetCreate(uintptr_t *set) {
    for (*set = 1; *set < MOST && device_of_set[*set]; ++*set) continue;
    return SUCCESS;
}
int nvmlEventSetFree(uintptr_t set) { device_of_set[set] = 0; return SUCCESS; }

int nvmlDeviceGetSupportedEventTypes(uintptr_t device, unsigned long long *types) {
    FAIL_AS_TOLD(device);
    *types = 8;
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(uintptr_t device, unsigned long long types, uintptr_t set) {
    if (types != 8) return INVALID_ARGUMENT;
    device_of_set[set] = device;
    return SUCCESS;
}

int nvmlEventSetWait_v2(uintptr_t set, event_data *data, unsigned int milliseconds) {
    static int returned[MOST];
    char found[MOST][512], own[96], uuid[96];
    int count = load("event", found);
    uintptr_t device = device_of_set[set];
    (void)milliseconds;
    FAIL_AS_TOLD(device);
    value(device, "uuid", own, sizeof own);
    for (int at = 0; at < count; at++) {
        memset(data, 0, sizeof *data);
        data->type = 8;
        data->gi = data->ci = 0xFFFFFFFF;
        if (sscanf(found[at], "event %95s %llu %u %u", uuid, &data->data, &data->gi, &data->ci) < 2) return INVALID_ARGUMENT;
        if (returned[at] || strcmp(uuid, own)) continue;
        returned[at] = 1;
        data->device = device;
        return SUCCESS;
    }
    return TIMEOUT;
}

typedef struct {
    unsigned int id, scope;
    long long at, took;
    int type, result;
    union { double d; unsigned int ui; unsigned long long ull; } value;
} field_value;

int nvmlDeviceGetFieldValues(uintptr_t device, int count, field_value *values) {
    unsigned int recovery = (unsigned int)number(device, "recovery");
    for (int at = 0; at < count; at++) {
        values[at].result = values[at].id == 230 && recovery ? SUCCESS : NOT_SUPPORTED;
        values[at].value.ui = recovery - 1;
    }
    return SUCCESS;
}
