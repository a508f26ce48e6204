// Measures coder/websocket in the scenarios of libraries/websocket/bench/frames: its newest release, and v1.8.14,
// whose reading code (read.go, conn.go, frame.go) is that of the commit before pull request 565.
// The state between the pull requests 565 and 566 is in no release and is not measured.
//
// The two functions that those pull requests measured are not exported. They are linked by name, so
// that the module's own code runs. Each version is a build of this folder with its own .mod file;
// the program that was started builds the other.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
)

// The contenders, and the .mod file that each is built with.
var contenders = map[string]string{"coder": "go.mod", "coder-1.8.14": "v1.8.14.mod"}

// The contender that this build was linked with.
func self() string {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if dep.Path == "github.com/coder/websocket" {
			if dep.Version == "v1.8.14" {
				return "coder-1.8.14"
			}
		}
	}
	return "coder"
}

func variant(contender string) (string, error) {
	_, source, _, _ := runtime.Caller(0)
	executable, err := os.Executable()
	if err != nil {
		return "", err
	}
	target := executable + "-" + contender
	if _, err := os.Stat(target); err == nil {
		return target, nil
	}
	build := exec.Command("go", "build", "-modfile="+contenders[contender], "-o", target, ".")
	build.Dir = filepath.Dir(source)
	build.Stderr = os.Stderr
	return target, build.Run()
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "list" {
		for _, scenario := range scenarios {
			for contender := range contenders {
				if contender != self() {
					if _, err := variant(contender); err != nil {
						fmt.Fprintln(os.Stderr, err)
						os.Exit(1)
					}
				}
				line, _ := json.Marshal(map[string]string{"scenario": scenario.name, "contender": contender, "what": scenario.what})
				fmt.Println(string(line))
			}
		}
		return
	}
	if len(os.Args) != 5 || os.Args[1] != "run" {
		fmt.Fprintln(os.Stderr, "usage: list | run SCENARIO CONTENDER ITERATIONS")
		os.Exit(2)
	}
	contender := os.Args[3]
	if contender != self() {
		target, err := variant(contender)
		if err == nil {
			command := exec.Command(target, os.Args[1:]...)
			command.Stdout, command.Stderr = os.Stdout, os.Stderr
			err = command.Run()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// One thread, as the contenders in Rust.
	runtime.GOMAXPROCS(1)
	iterations, err := strconv.Atoi(os.Args[4])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	for _, scenario := range scenarios {
		if scenario.name == os.Args[2] {
			operation := scenario.begin()
			for range 1000 {
				operation()
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := cpuTime()
			for range iterations {
				operation()
			}
			took := cpuTime() - start
			runtime.ReadMemStats(&after)
			n := float64(iterations)
			line, _ := json.Marshal(map[string]any{
				"scenario":      scenario.name,
				"contender":     contender,
				"iterations":    iterations,
				"ns_per_op":     float64(took) / n,
				"allocs_per_op": float64(after.Mallocs-before.Mallocs) / n,
				"bytes_per_op":  float64(after.TotalAlloc-before.TotalAlloc) / n,
			})
			fmt.Println(string(line))
			return
		}
	}
	fmt.Fprintln(os.Stderr, "no such scenario")
	os.Exit(2)
}

// CPU time of the process in ns. On a shared machine, wall time would include that of other
// programs.
func cpuTime() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}
