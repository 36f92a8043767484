package atrest

import (
	"os"

	"golang.org/x/sys/unix"
)

// LetGo lets go of the pages of the program's file that are mapped. The system
// keeps them cached while it has room; those in use come back as they are
// touched, at a microsecond or so for sixteen, and others do not. What goes wrong, such as
// a /proc that may not be read, leaves things as they are. Safe for concurrent use.
func LetGo() {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for _, s := range untouched(smaps, exe) {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(s.start), uintptr(s.end-s.start), unix.MADV_DONTNEED)
	}
}
