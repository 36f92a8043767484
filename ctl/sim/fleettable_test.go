package sim

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	fleets = flag.String("fleets", "1,30", "TestFleetsOfManySizes: numbers of processes")
	grow   = flag.Bool("grow", false, "TestFleetsOfManySizes: the rate limit and the clients grow with the processes")
)

// TestFleetsOfManySizes prints the table of docs/how-to/fleet.md. Each cell has the share of 429s at the
// upstream and the good responses as a share of the rate limit.
func TestFleetsOfManySizes(t *testing.T) {
	t.Log("| processes | alone | pause | shared | rate limit | rate limit, 100 ms away | questions/s |")
	for _, text := range strings.Split(*fleets, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("-fleets: %q is no number of processes", text)
		}
		row, asked := fmt.Sprintf("| %d |", n), 0.0
		for _, of := range []struct {
			share Sharing
			delay time.Duration
		}{{ShareNothing, 0}, {ShareWithin, 0}, {ShareRateLimitPauses, 10 * time.Millisecond}, {ShareRateLimit, 10 * time.Millisecond}, {ShareRateLimit, 100 * time.Millisecond}} {
			c := DefaultFleet(n)
			c.Seed, c.Share, c.Delay = 1, of.share, of.delay
			if *grow {
				c.Grow()
			}
			r := RunFleet(c)
			row += fmt.Sprintf(" %.2f %%, %.1f %% |", 100*r.LimitedShare, 100*r.GoodShare)
			if asked == 0 {
				asked = float64(r.LeaseRequests) / c.Length.Seconds()
			}
		}
		t.Logf("%s %.0f |", row, asked)
	}
}
