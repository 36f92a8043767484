package terminal

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// pty is a new terminal and what stands for the person in front of it.
func pty(t *testing.T) (person, tty *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	t.Cleanup(func() { person.Close() })
	fd := int(person.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	if tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Skip("no terminals here: ", err)
	}
	t.Cleanup(func() { tty.Close() })
	return person, tty
}

func localModes(t *testing.T, tty *os.File) uint32 {
	t.Helper()
	set, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return set.Lflag & (unix.ICANON | unix.ECHO | unix.ISIG)
}

func TestKeysComeAtOnceAndTheTerminalIsGivenBack(t *testing.T) {
	person, tty := pty(t)
	before := localModes(t, tty)
	keys, stop := Keys(tty)
	if got := localModes(t, tty); got != unix.ISIG {
		t.Errorf("local modes %#x: keys are shown or kept, or make no signals", got)
	}
	if _, err := person.WriteString("xq"); err != nil { // without a line end
		t.Fatal(err)
	}
	if a, b := <-keys, <-keys; a != 'x' || b != 'q' {
		t.Errorf("keys %q %q", a, b)
	}
	stop()
	if got := localModes(t, tty); got != before {
		t.Errorf("local modes %#x, %#x before", got, before)
	}
}

func TestSizeIsTheWindows(t *testing.T) {
	_, tty := pty(t)
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 61, Row: 17}); err != nil {
		t.Fatal(err)
	}
	if columns, rows := Size(tty); columns != 61 || rows != 17 {
		t.Errorf("%d columns, %d rows", columns, rows)
	}
	if keys, stop := Keys(os.Stderr); keys != nil && !Is(os.Stderr) {
		stop()
		t.Error("keys of what is no terminal")
	}
}
