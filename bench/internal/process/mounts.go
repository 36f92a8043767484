package process

import (
	"errors"
	"os/exec"
	"strings"
)

// CanMount says why the machine has no mount namespace for us.
func CanMount() error {
	if out, err := exec.Command("unshare", "--mount", "mount", "--bind", "/tmp", "/tmp").CombinedOutput(); err != nil {
		return errors.New("no mount namespace: " + strings.TrimSpace(string(out)+" "+err.Error()))
	}
	return nil
}

// Mounting is a command line that runs a program, with more of its shell line, where a mount is made that
// nobody else sees and that ends with it.
func Mounting(mount string, more ...string) []string {
	return []string{"unshare", "--mount", "sh", "-c", mount + ` && exec "$@" ` + strings.Join(more, " "), "sh"}
}
