// Package companion is about commands of the project that are separate programs, so that the
// sidecar does not contain what only they need: how retryproxy finds them, and their frame.
package companion

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Find returns the path of the command: in the directory of this executable, or else in PATH. The
// error is that of exec.LookPath.
func Find(command string) (string, error) {
	if runtime.GOOS == "windows" {
		command += ".exe"
	}
	if self, err := os.Executable(); err == nil {
		if found, err := exec.LookPath(filepath.Join(filepath.Dir(self), command)); err == nil {
			return found, nil
		}
	}
	return exec.LookPath(command)
}
