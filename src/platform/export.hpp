// Which symbols a library exports, as either system's compiler is told. For the entry points of the API.
#pragma once

// Before a function of the library's interface.
#if defined(_WIN32)
#define STRETTO_EXPORTED [[gnu::dllexport]]
#else
#define STRETTO_EXPORTED [[gnu::visibility("default")]]
#endif

// Before a function that a tool may define itself; the program then calls the tool's. On Windows a program
// names the DLL of each function, so nothing can be put before it.
#if defined(_WIN32)
#define STRETTO_WEAKLY_EXPORTED [[gnu::dllexport]]
#else
#define STRETTO_WEAKLY_EXPORTED [[gnu::weak, gnu::visibility("default")]]
#endif

// Before what only this library refers to, though other libraries of ours include its header.
#if defined(_WIN32)
#define STRETTO_HIDDEN
#else
#define STRETTO_HIDDEN [[gnu::visibility("hidden")]]
#endif
