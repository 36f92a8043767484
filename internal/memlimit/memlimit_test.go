package memlimit

import (
	"errors"
	"math"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

func TestTheRuntimeGetsItsShareOfTheLimit(t *testing.T) {
	for name, c := range map[string]struct {
		limit uint64
		err   error
		want  int64
	}{
		"a limit":            {1000, nil, 900},
		"no limit":           {0, memlimit.ErrNoLimit, 0},
		"outside Linux":      {0, memlimit.ErrCgroupsNotSupported, 0},
		"it cannot be read":  {0, errors.New("permission denied"), 0},
		"as good as none":    {math.MaxInt64, nil, 0},
		"larger than 64 bit": {math.MaxUint64, nil, 0},
	} {
		if got := shareOf(func() (uint64, error) { return c.limit, c.err }); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestTheLowerLimitCounts(t *testing.T) {
	for _, c := range []struct{ soft, ofGroup, want int64 }{
		{math.MaxInt64, 0, 0},
		{math.MaxInt64, 900, 900},
		{500, 900, 500},
		{5000, 900, 900},
		{500, 0, 500},
	} {
		if got := lower(c.soft, c.ofGroup); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestApplyLeavesTheUsersLimitAlone(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	if got := Apply("100MiB"); got != 0 || debug.SetMemoryLimit(-1) != before {
		t.Errorf("set %d", got)
	}
}
