/* A libnvidia-ml.so.1 for tests: it returns what the file named by GAS_FAKE_NVML says, read anew at every call.
 *
 * Each line is "KEY VALUE" about the library, or "card KEY=VALUE ..." about one card:
 *
 *     init 9                      nvmlInitWithFlags returns this error
 *     event GPU-... 79            one Xid, returned once: the count of these lines is what was returned so far
 *     near GPU-... GPU-...        two cards that share a PCIe switch
 *     card uuid=GPU-... minor=0 bus=16 id=590352606 name=NVIDIA_H100 total=85899345920 reserved=1073741824
 *          [mig=1] [peer=17] [switch=1] [error=15] [hang=1] [v1=1]
 *
 * error  every call about the card returns it;  hang  nvmlDeviceGetName never returns while it is set
 * peer   bus of the card at the other end of NVLink 0;  switch  NVLink 0 leads to an NVSwitch
 * v1     the driver does not know nvmlDeviceGetMemoryInfo_v2
 *
 * A handle is the number of the card, plus one.
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

static char lines[MOST][512];
static int events_returned = 0;

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

/* Copy the value of a key of a card; return whether it has one. */
static int value(uintptr_t device, const char *key, char *text, size_t size) {
    char found[MOST][512], wanted[40];
    int count = load("card", found);
    if (device < 1 || (int)device > count) return 0;
    snprintf(wanted, sizeof wanted, " %s=", key);
    char *at = strstr(found[device - 1], wanted);
    if (!at) return 0;
    at += strlen(wanted);
    snprintf(text, size, "%.*s", (int)strcspn(at, " "), at);
    return 1;
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

int nvmlDeviceGetCount_v2(unsigned int *count) { *count = load("card", lines); return SUCCESS; }

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
    return SUCCESS;
}

int nvmlDeviceGetName(uintptr_t device, char *name, unsigned int length) {
    while (number(device, "hang")) usleep(20000);
    return value(device, "name", name, length) ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetMemoryInfo(uintptr_t device, memory_v1 *memory) {
    memset(memory, 0, sizeof *memory);
    memory->total = number(device, "total") - number(device, "reserved");
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(uintptr_t device, memory_v2 *memory) {
    if (number(device, "v1")) return NOT_SUPPORTED;
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

int nvmlEventSetCreate(uintptr_t *set) { *set = 1; return SUCCESS; }
int nvmlEventSetFree(uintptr_t set) { (void)set; return SUCCESS; }

int nvmlDeviceGetSupportedEventTypes(uintptr_t device, unsigned long long *types) {
    FAIL_AS_TOLD(device);
    *types = 8;
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(uintptr_t device, unsigned long long types, uintptr_t set) {
    (void)device;
    return types == 8 && set == 1 ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlEventSetWait_v2(uintptr_t set, event_data *data, unsigned int milliseconds) {
    char found[MOST][512], uuid[96];
    (void)set, (void)milliseconds;
    if (events_returned >= load("event", found)) return TIMEOUT;
    memset(data, 0, sizeof *data);
    data->type = 8;
    if (sscanf(found[events_returned++], "event %95s %llu", uuid, &data->data) != 2) return INVALID_ARGUMENT;
    return nvmlDeviceGetHandleByUUID(uuid, &data->device);
}
