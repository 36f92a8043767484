// Package companion finds those commands of the project that are programs of their
// own so that the sidecar does not carry what only they need.
package companion

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Find is the path of the command: in the directory of this executable, else in
// PATH. The error is that of exec.LookPath.
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
