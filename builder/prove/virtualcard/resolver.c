/* A second implementation of NVIDIA's documented rules for the image of a fatbin container that a driver runs.
 *
 * Nothing here is derived from builder/facts/gpu and builder/binary: their results are compared, to find mistakes. Sources:
 *   - the rules for SASS and PTX, suffixes and families: CUDA C++ Programming Guide, "Compute Capabilities" and
 *     "Family-Specific Features"; Blackwell Compatibility Guide 13.0
 *   - embedded parts, whose SASS other parts of the same major do not run, nor the reverse: CUDA for Tegra; that 10.1 is
 *     called 11.0 since CUDA 13: PTX ISA 9.0, "Changes"
 *   - driver branches, their CUDA versions and the first and last devices of each: CUDA Toolkit release notes,
 *     table 3 "CUDA Toolkit and Corresponding Driver Versions", and "Deprecated Architectures"; of CUDA 13.5 NVIDIA's
 *     list of driver archives, redistrib_620.70.06.json
 *   - the PTX ISA of each CUDA version: PTX ISA, "Release History"
 *   - that zstd images need CUDA 12.4's driver: nvcc's manual, --compress-mode
 * The layout of a container is in builder/binary/fatbin_format.py; NVIDIA documents none. */
#include "resolver.h"

#include <string.h>

#include "cuda_abi.h"

typedef struct {
    uint32_t magic;
    uint16_t version;
    uint16_t header;
    uint64_t size;
} ContainerHeader;

typedef struct {
    uint16_t kind;
    uint16_t version;
    uint32_t header;
    uint64_t payload;
    uint32_t packed;
    uint32_t options;
    uint16_t isa_minor;
    uint16_t isa_major;
    uint32_t arch;
    uint32_t name_offset;
    uint32_t name_length;
    uint64_t flags;
} ImageHeader;

enum { PTX = 1, SASS = 2 };
enum { LINUX_64 = 0x11, LZ4 = 0x2000, ZSTD = 0x8000, SUFFIX_A = 0x100000, SUFFIX_F = 0x200000 };
static const uint32_t MAGIC = 0xBA55ED50;

static const Device devices[] = {
    /* capability, embedded, shared memory of a block that opts in (KiB), threads of a multiprocessor, driver branches */
    {50, 0, 48, 2048, 0, 580},   {52, 0, 48, 2048, 0, 580},   {53, 1, 48, 2048, 0, 580},
    {60, 0, 48, 2048, 0, 580},   {61, 0, 48, 2048, 0, 580},   {62, 1, 48, 2048, 0, 580},
    {70, 0, 96, 2048, 0, 580},   {72, 1, 96, 2048, 0, 580},   {75, 0, 64, 1024, 0, 0},
    {80, 0, 163, 2048, 450, 0},  {86, 0, 99, 1536, 455, 0},   {87, 1, 163, 1536, 470, 0},
    {89, 0, 99, 1536, 520, 0},   {90, 0, 227, 2048, 520, 0},  {100, 0, 227, 2048, 570, 0},
    {103, 0, 227, 2048, 575, 0}, {110, 1, 227, 1536, 580, 0}, {120, 0, 99, 1536, 570, 0},
    {121, 0, 99, 1536, 575, 0},
};

typedef struct {
    int branch, cuda, ptx; /* 120 for 12.0 */
} Driver;

static const Driver drivers[] = {
    {0, 0, 0},
    {450, 110, 70}, {455, 111, 71}, {460, 112, 72}, {465, 113, 73}, {470, 114, 74}, {495, 115, 75}, {510, 116, 76},
    {515, 117, 77}, {520, 118, 78}, {525, 120, 80}, {530, 121, 81}, {535, 122, 82}, {545, 123, 83}, {550, 124, 84},
    {555, 125, 85}, {560, 126, 85}, {565, 127, 86}, {570, 128, 87}, {575, 129, 88}, {580, 130, 90}, {590, 131, 91},
    {595, 132, 92}, {610, 133, 93}, {615, 134, 94}, {620, 135, 95},
};

static const struct {
    int code, first, second; /* the devices that run the code of a family */
} families[] = {{100, 100, 103}, {103, 103, 103}, {110, 110, 110}, {120, 120, 121}, {121, 121, 121}};

#define COUNT(table) (sizeof(table) / sizeof *(table))

const Device *find_device(int capability) {
    for (size_t at = 0; at < COUNT(devices); at++)
        if (devices[at].capability == capability) return &devices[at];
    return NULL;
}

/* Returns the row of a driver branch, or of the newest branch before it. */
static const Driver *driver_of(int branch) {
    const Driver *found = drivers;
    for (size_t at = 0; at < COUNT(drivers) && drivers[at].branch <= branch; at++) found = &drivers[at];
    return found;
}

int driver_cuda(int branch) { return driver_of(branch)->cuda; }

static int same_family(int code, int device) {
    for (size_t at = 0; at < COUNT(families); at++)
        if (families[at].code == code) return device == families[at].first || device == families[at].second;
    return 0;
}

static int renamed(int code) { return code == 101 ? 110 : code; }

int sass_runs(int code, uint64_t flags, const Device *device) {
    code = renamed(code);
    const Device *made_for = find_device(code);
    if (made_for == NULL) return 0;
    if (made_for->embedded || device->embedded) return code == device->capability;
    if (flags & SUFFIX_A) return code == device->capability;
    if (flags & SUFFIX_F) return same_family(code, device->capability);
    return code / 10 == device->capability / 10 && code <= device->capability;
}

/* PTX without a suffix is compared by the number in it, also a renamed one: ptxas 12.9 makes sm_103 from compute_101. */
static int ptx_fits(int written, uint64_t flags, const Device *device) {
    if (flags & SUFFIX_A) return renamed(written) == device->capability;
    if (flags & SUFFIX_F) return same_family(renamed(written), device->capability);
    return written <= device->capability;
}

Resolved resolve(const void *fatbin, int capability, int branch) {
    Resolved found = {NO_KERNEL_IMAGE, 0, 0};
    const Device *device = find_device(capability);
    const ContainerHeader *container = fatbin;
    if (device == NULL || container->magic != MAGIC) return found;
    int too_new = 0;
    const char *at = (const char *)fatbin + container->header;
    const char *end = at + container->size;
    while (end - at >= (ptrdiff_t)sizeof(ImageHeader)) {
        ImageHeader image;
        memcpy(&image, at, sizeof image);
        if (image.header < sizeof image || image.payload > (uint64_t)(end - at) - image.header) break;
        at += image.header + image.payload;
        if ((image.flags & LINUX_64) != LINUX_64) continue;
        if ((image.flags & ZSTD) && driver_cuda(branch) < 124) continue;
        const int code = (int)image.arch;
        if (image.kind == SASS && sass_runs(code, image.flags, device)) {
            if (found.error || found.jit || code > found.code) found = (Resolved){SUCCESS, 0, code};
        } else if (image.kind == PTX && ptx_fits(code, image.flags, device)) {
            if (image.isa_major * 10 + image.isa_minor > driver_of(branch)->ptx) too_new = 1;
            else if (found.error || (found.jit && code > found.code)) found = (Resolved){SUCCESS, 1, code};
        }
    }
    if (found.error && too_new) found.error = UNSUPPORTED_PTX;
    return found;
}
