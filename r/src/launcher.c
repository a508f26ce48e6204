// The program `rookery`, which is installed in exec/ of the package. Loads the shared library of
// the package, librookery-<version>.so, and calls rookery_main(), which is in Rust
// (rust/src/program).
// The library does not refer to R, so this process does not load R.
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif
#ifdef __linux__
#include <sys/prctl.h>
#endif
#ifdef __FreeBSD__
#include <sys/types.h>
#include <sys/sysctl.h>
#endif

// The library, as seen from the folder of the package. Makevars adds the subfolder for the
// architecture, if there is one.
#ifndef LIBS
#define LIBS "libs"
#endif
#define LIBRARY "/" LIBS "/core/librookery-" ROOKERY_VERSION ".so"

typedef int main_function(int, char **);

// Writes the path of this program, without symbolic links, into `path`, which has PATH_MAX bytes.
// Returns whether the path is known; if it is not, errno has the reason.
static int program_path(char *path) {
#ifdef __APPLE__
    char unresolved[PATH_MAX];
    uint32_t size = sizeof unresolved;
    return _NSGetExecutablePath(unresolved, &size) == 0 && realpath(unresolved, path) != NULL;
#elif defined(__FreeBSD__)
    char unresolved[PATH_MAX];
    size_t size = sizeof unresolved;
    int name[] = {CTL_KERN, KERN_PROC, KERN_PROC_PATHNAME, -1};
    return sysctl(name, 4, unresolved, &size, NULL, 0) == 0 && realpath(unresolved, path) != NULL;
#else
    return realpath("/proc/self/exe", path) != NULL;
#endif
}

// Replaces the path of a file by that of the folder that contains it. Returns whether there is one.
static int to_parent(char *path) {
    char *end = strrchr(path, '/');
    if (end == NULL) return 0;
    *end = '\0';
    return 1;
}

int main(int argc, char **argv) {
#ifdef PR_SET_THP_DISABLE
    // Turns huge pages off before the library allocates memory, as crates/cli/src/main.rs does.
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
#endif
    char path[PATH_MAX + sizeof LIBRARY];
    errno = ENAMETOOLONG;  // macOS does not set it
    if (!program_path(path)) {
        fprintf(stderr, "rookery: The path of this program cannot be read: %s."
            " On Linux, /proc must be mounted.\n", strerror(errno));
        return 1;
    }
    if (!to_parent(path) || !to_parent(path)) {
        fprintf(stderr, "rookery: The program must be in the folder exec/ of the R package.\n");
        return 1;
    }
    strcat(path, LIBRARY);
    // The path is absolute, so a program with file capabilities loads the same library.
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    main_function *run = NULL;
    // POSIX permits this conversion to a pointer to a function, ISO C does not.
    if (library != NULL) *(void **)&run = dlsym(library, "rookery_main");
    if (run == NULL) {
        fprintf(stderr,
            "rookery: The library of the R package rookery cannot be loaded: %s.\n"
            "Install the package again. The program works only inside the package; "
            "rookery::install_cli() makes a link to it.\n",
            dlerror());
        return 1;
    }
    return run(argc, argv);
}
