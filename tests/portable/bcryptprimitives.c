/* The function of Windows' bcryptprimitives.dll that Rust's standard library uses, which Wine 8
 * lacks, by the function of advapi32 that does the same. */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size) {
    return SystemFunction036(data, (ULONG)size);
}
