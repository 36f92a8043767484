package atrest

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const smaps = `00400000-009c6000 r-xp 00000000 fe:00 1234                       /usr/bin/retry proxy
Size:               5912 kB
Rss:                5080 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me
009c6000-01010000 r--p 005c6000 fe:00 1234                       /usr/bin/retry proxy
Anonymous:             0 kB
Swap:                  0 kB
01010000-01074000 r--p 00c10000 fe:00 1234                       /usr/bin/retry proxy
Anonymous:             4 kB
Swap:                  0 kB
01074000-0107a000 r--p 00c10000 fe:00 1234                       /usr/bin/retry proxy
Anonymous:             0 kB
Swap:                  4 kB
0107a000-010c0000 rw-p 00c10000 fe:00 1234                       /usr/bin/retry proxy
Anonymous:             0 kB
Swap:                  0 kB
c000000000-c000400000 rw-p 00000000 00:00 0 
Anonymous:           972 kB
Swap:                  0 kB
7f0000000000-7f0000001000 r-xp 00000000 fe:00 99                 /lib/libc.so
Anonymous:             0 kB
Swap:                  0 kB
7fff0000-7fff1000 r-xp 00000000 00:00 0                          [vdso]
Anonymous:             0 kB
Swap:                  0 kB
`

// Only the program's own pages go, and none that may differ from the file.
func TestWhatIsLetGo(t *testing.T) {
	got := untouched([]byte(smaps), "/usr/bin/retry proxy")
	want := []span{{0x400000, 0x9c6000}, {0x9c6000, 0x1010000}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
	for _, bad := range []string{"", "x", "zz-1 r-xp 0 0 0 /usr/bin/retry proxy\nAnonymous: 0 kB\nSwap: 0 kB\n", "1 r-xp 0 0 0 /usr/bin/retry proxy\nAnonymous: 0 kB\nSwap: 0 kB\n"} {
		if got := untouched([]byte(bad), "/usr/bin/retry proxy"); got != nil {
			t.Errorf("%q: %x", bad, got)
		}
	}
}

func TestSettleEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		Settle(ctx)
		if time.Since(began) != 0 {
			t.Error("it waited")
		}
	})
}
