// The first command stands in the place of each of busybox' programs in the images of the suites. The kernel keeps TERM from a
// container's first process unless it asks for it, and a shell does not: a pod would end only with its grace period. So the program that
// is meant is a child of the first process, which passes signals on and ends as its child does. It is curl and bash as well, as far as
// the suites need them.
package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
)

const busybox = "/lib/busybox"

func main() {
	words := os.Args
	switch filepath.Base(words[0]) {
	case "curl":
		end(fetch(words[len(words)-1]))
	case "bash":
		words[0] = "sh"
	case "sh":
		words = withoutShell(words)
	}
	if os.Getpid() != 1 {
		end(syscall.Exec(busybox, words, os.Environ()))
	}
	os.Exit(runFirst(words))
}

// withoutShell is what a script of one word runs: busybox' shell would keep variables from it whose names no shell can use.
func withoutShell(words []string) []string {
	if len(words) != 3 || words[1] != "-c" {
		return words
	}
	for _, letter := range words[2] {
		if letter < 'a' || letter > 'z' {
			return words
		}
	}
	return words[2:]
}

func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func fetch(url string) error {
	answer, err := http.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}

// runFirst returns what the child ends with: of a signal as a shell would say it.
func runFirst(words []string) int {
	child := exec.Cmd{Path: busybox, Args: words, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals)
	if err := child.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 127
	}
	go func() {
		for received := range signals {
			if received != syscall.SIGCHLD && received != syscall.SIGURG {
				child.Process.Signal(received)
			}
		}
	}()
	err := child.Wait()
	var ended *exec.ExitError
	if !errors.As(err, &ended) {
		return 0
	}
	if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return ended.ExitCode()
}
