//go:build linux

package main

import (
	"os/exec"
	"strings"
)

// canMount says why the machine has no mount namespace for us.
func canMount() error {
	if out, err := exec.Command("unshare", "--mount", "mount", "--bind", "/tmp", "/tmp").CombinedOutput(); err != nil {
		return impossible{"no mount namespace: " + strings.TrimSpace(string(out))}
	}
	return nil
}

// mounting runs a program, with more of its shell line, where a mount is made that
// nobody else sees and that ends with it.
func mounting(mount string, more ...string) []string {
	return []string{"unshare", "--mount", "sh", "-c", mount + ` && exec "$@" ` + strings.Join(more, " "), "sh"}
}
