// A HIP runtime without a GPU: it checks every call, and does what a GPU may do at the worst.
//
// Device memory is at addresses where the CPU can neither read nor write; its bytes are in a
// shadow. No address is used twice, fresh memory is all NaN. Work waits in its stream, which no
// other waits for, until somebody synchronizes. Kernels are functions of the test. What HIP would
// not notice, or punish with a crash, is a violation, which the test asks for at its end.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { OK, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100,
       INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_HANDLE = 400, NOT_FOUND = 500,
       NOT_READY = 600 };
enum { ARENA = 1 << 28, PAGE = 4096, MANY = 1 << 14 };
enum { COPY, LAUNCH, EVENT };

typedef struct { char *start; size_t size; int live; } Block;
typedef struct { uint32_t argument_bytes, max_threads, live; char name[256]; } Module;
typedef struct { int live, happened; float milliseconds; } Event;
typedef struct {
  int kind, done; void *stream; char *to; const char *from; size_t size; Module *module;
  unsigned extents[6], shared; Event *event;
} Work;
typedef void (*Kernel)(const char *, const unsigned *, unsigned, void *, const void *);

static char *arena, *shadow;
static size_t used, in_use, capacity;
static Block blocks[MANY];
static Module modules[MANY];
static Event events[MANY];
static Work works[MANY];
static int block_count, module_count, event_count, work_count, stream_count;
static int device_count, initialized, fail_in, fail_code;
static char arch[256], fail_name[64];
static float clock_ms;
static Kernel run_kernel;

// Kernels, which run while this is locked, come back for addresses.
static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int lock(void) { return pthread_mutex_lock(&mutex); }
static void unlock(int *locked) { pthread_mutex_unlock(&mutex); }
#define LOCKED __attribute__((cleanup(unlock), unused)) int locked = lock()

typedef struct { char text[1 << 20]; size_t length; } Log;
static Log calls, violations;

static void append(Log *log, const char *name, const char *format, va_list values) {
  if (log->length > sizeof log->text - 1024) log->length = 0;
  char *end = log->text + log->length;
  int length = snprintf(end, 256, "%s ", name);
  length += vsnprintf(end + length, 512, format, values);
  strcpy(end + length, "\n");
  log->length += length + 1;
}

static void violation(const char *format, ...) {
  va_list values;
  va_start(values, format);
  append(&violations, "violation:", format, values);
  va_end(values);
}

// Note a call; nonzero where the test wants it to fail.
static int called(const char *name, const char *format, ...) {
  va_list values;
  va_start(values, format);
  append(&calls, name, format, values);
  va_end(values);
  if (!initialized && strcmp(name, "hipInit")) violation("%s before hipInit", name);
  if (!strcmp(name, fail_name) && fail_in && --fail_in == 0) return fail_code;
  return OK;
}

static Block *block_of(const char *address, size_t size) {
  for (int i = 0; i < block_count; ++i)
    if (blocks[i].live && address >= blocks[i].start &&
        address + size <= blocks[i].start + blocks[i].size) return &blocks[i];
  return NULL;
}

static int on_device(const char *address) { return address >= arena && address < arena + ARENA; }

static char *bytes_at(const char *address, size_t size, int device) {
  if (on_device(address) != device) violation("%p is on the wrong side of a copy", address);
  if (!on_device(address)) return (char *)address;
  if (!block_of(address, size)) violation("%zu bytes at %p are not allocated", size, address);
  return shadow + (address - arena);
}

static int known_stream(void *stream) {
  int known = (intptr_t)stream <= stream_count;
  if (!known) violation("%p is no stream", stream);
  return known;
}

static void run(Work *work) {
  if (work->done) return;
  work->done = 1;
  if (work->kind == COPY) {
    memcpy(work->to, work->from, work->size);
  } else if (work->kind == LAUNCH) {
    if (!work->module->live) violation("%s runs after its module is gone", work->module->name);
    clock_ms += 1;
    run_kernel(work->module->name, work->extents, work->shared, work->stream, work->from);
    free((void *)work->from);
  } else {
    work->event->happened = 1;
    work->event->milliseconds = clock_ms;
  }
}

static void run_stream(void *stream, int all) {
  for (int i = 0; i < work_count; ++i)
    if (all || works[i].stream == stream) run(&works[i]);
  if (all) work_count = 0;
}

static void enqueue(Work work) {
  if (work_count == MANY) run_stream(NULL, 1);
  works[work_count++] = work;
}

// What a test calls.
void fake_reset(int devices, const char *name, size_t memory, Kernel kernel) {
  if (!arena) {
    arena = mmap(NULL, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    shadow = mmap(NULL, ARENA, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  device_count = devices, capacity = memory, run_kernel = kernel, fail_in = 0;
  snprintf(arch, sizeof arch, "%s", name);
  calls = violations = (Log){{0}, 0};
}
void fake_fail(const char *name, int nth, int code) {
  snprintf(fail_name, sizeof fail_name, "%s", name);
  fail_in = nth, fail_code = code;
}
const char *fake_calls(void) { return calls.text; }
const char *fake_violations(void) { return violations.text; }
void *fake_host_address(const char *address) {
  LOCKED;
  return bytes_at(address, 1, 1);
}
void *fake_stream(void) { return (void *)(intptr_t)++stream_count; }
size_t fake_in_use(void) { return in_use; }
int fake_live_modules(void) {
  int live = 0;
  for (int i = 0; i < module_count; ++i) live += modules[i].live;
  return live;
}
int fake_live_events(void) {
  int live = 0;
  for (int i = 0; i < event_count; ++i) live += events[i].live;
  return live;
}

// HIP.
int hipInit(unsigned flags) {
  LOCKED;
  initialized = 1;
  return called("hipInit", "%u", flags);
}
const char *hipGetErrorName(int code) { return code == OUT_OF_MEMORY ? "hipErrorOutOfMemory"
                                                                     : "hipErrorOfTheFake"; }
const char *hipGetErrorString(int code) { return code == OUT_OF_MEMORY ? "out of memory"
                                                                       : "the fake says no"; }
int hipGetDeviceCount(int *count) {
  LOCKED;
  int error = called("hipGetDeviceCount", "");
  *count = device_count;
  return error ? error : device_count ? OK : NO_DEVICE;
}
int hipGetDevicePropertiesR0600(char *properties, int device) {
  LOCKED;
  int error = called("hipGetDevicePropertiesR0600", "%d", device);
  if (error || device >= device_count) return error ? error : INVALID_DEVICE;
  memset(properties, 0xab, 1472);
  strcpy(properties, "AMD Fake MI300X");
  *(size_t *)(properties + 296) = 65536;
  *(int *)(properties + 308) = 64;
  *(int *)(properties + 320) = 1024;
  strcpy(properties + 1160, arch);
  return OK;
}
int hipSetDevice(int device) {
  LOCKED;
  int error = called("hipSetDevice", "%d", device);
  return error ? error : device == 0 ? OK : INVALID_DEVICE;  // also when it hides
}
int hipDeviceSynchronize(void) {
  LOCKED;
  int error = called("hipDeviceSynchronize", "");
  run_stream(NULL, 1);
  return error;
}
int hipStreamSynchronize(void *stream) {
  LOCKED;
  int error = called("hipStreamSynchronize", "%p", stream);
  if (known_stream(stream)) run_stream(stream, 0);
  return error;
}
int hipMalloc(char **address, size_t size) {
  LOCKED;
  int error = called("hipMalloc", "%zu", size);
  *address = NULL;
  if (error) return error;
  if (!size) violation("hipMalloc of nothing");
  if (in_use + size > capacity || used + size + PAGE > ARENA || block_count == MANY)
    return OUT_OF_MEMORY;
  *address = arena + used;
  memset(shadow + used, 0xff, size);
  blocks[block_count++] = (Block){*address, size, 1};
  used += (size + 2 * PAGE - 1) / PAGE * PAGE;
  in_use += size;
  return OK;
}
int hipFree(char *address) {
  LOCKED;
  int error = called("hipFree", "%p", address);
  Block *block = block_of(address, 1);
  run_stream(NULL, 1);
  if (!block || block->start != address) {
    violation("hipFree of %p, which is not allocated", address);
    return INVALID_VALUE;
  }
  memset(shadow + (address - arena), 0xff, block->size);
  block->live = 0;
  in_use -= block->size;
  return error;
}
int hipMemcpyAsync(char *to, const char *from, size_t size, int kind, void *stream) {
  LOCKED;
  int error = called("hipMemcpyAsync", "%zu %d %p", size, kind, stream);
  if (error) return error;
  if (kind < 1 || kind > 3) violation("%d is no kind of copy", kind);
  if (!known_stream(stream)) return INVALID_HANDLE;
  enqueue((Work){.kind = COPY, .stream = stream, .size = size,
                 .to = bytes_at(to, size, kind != 2), .from = bytes_at(from, size, kind != 1)});
  return OK;
}
int hipEventCreate(Event **event) {
  LOCKED;
  int error = called("hipEventCreate", "");
  *event = &events[event_count++];
  if (!error) (*event)->live = 1;
  return error;
}
int hipEventDestroy(Event *event) {
  LOCKED;
  int error = called("hipEventDestroy", "");
  if (!event->live) violation("an event is destroyed twice");
  event->live = 0;
  return error;
}
int hipEventRecord(Event *event, void *stream) {
  LOCKED;
  int error = called("hipEventRecord", "%p", stream);
  if (!event->live) violation("an event that is gone is recorded");
  event->happened = 0;
  if (known_stream(stream)) enqueue((Work){.kind = EVENT, .stream = stream, .event = event});
  return error;
}
int hipEventSynchronize(Event *event) {
  LOCKED;
  int error = called("hipEventSynchronize", "");
  for (int i = 0; i < work_count && !event->happened; ++i)
    if (works[i].event == event) run_stream(works[i].stream, 0);
  return error;
}
int hipEventElapsedTime(float *milliseconds, Event *start, Event *end) {
  LOCKED;
  int error = called("hipEventElapsedTime", "");
  if (error || !start->happened || !end->happened) return error ? error : NOT_READY;
  *milliseconds = end->milliseconds - start->milliseconds;
  return OK;
}
int hipModuleLoadData(Module **module, const char *image) {
  LOCKED;
  int error = called("hipModuleLoadData", "");
  if (error || memcmp(image, "\x7f" "ELF", 4)) return error ? error : INVALID_IMAGE;
  *module = &modules[module_count++];
  memcpy(&(*module)->argument_bytes, image + 4, 4);
  memcpy(&(*module)->max_threads, image + 8, 4);
  snprintf((*module)->name, sizeof (*module)->name, "%s", image + 12);
  (*module)->live = 1;
  return OK;
}
int hipModuleUnload(Module *module) {
  LOCKED;
  int error = called("hipModuleUnload", "%s", module->name);
  if (!module->live) violation("module %s is unloaded twice", module->name);
  module->live = 0;
  return error;
}
int hipModuleGetFunction(Module **function, Module *module, const char *name) {
  LOCKED;
  int error = called("hipModuleGetFunction", "%s", name);
  if (error || strcmp(name, module->name)) return error ? error : NOT_FOUND;
  *function = module;
  return OK;
}
int hipModuleLaunchKernel(Module *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared, void *stream,
                          void **parameters, void **extra) {
  LOCKED;
  int error = called("hipModuleLaunchKernel", "%s %u %u %u, %u %u %u, %u, %p", function->name, gx,
                     gy, gz, bx, by, bz, shared, stream);
  if (error) return error;
  if (!function->live) violation("%s is launched after its module is gone", function->name);
  if (!gx || !gy || !gz || !bx || !by || !bz || shared > 65536 ||
      bx * by * bz > function->max_threads) return INVALID_VALUE;
  if (!known_stream(stream)) return INVALID_HANDLE;
  if (parameters || extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4] != (void *)3)
    violation("the arguments of %s are not given as a buffer", function->name);
  size_t size = *(size_t *)extra[3];
  if (size != function->argument_bytes)
    violation("%s takes %u bytes of arguments, got %zu", function->name, function->argument_bytes,
              size);
  Work work = {.kind = LAUNCH, .stream = stream, .module = function, .shared = shared,
               .extents = {gx, gy, gz, bx, by, bz}, .from = malloc(size + 1)};
  memcpy((char *)work.from, extra[1], size);
  enqueue(work);
  return OK;
}
