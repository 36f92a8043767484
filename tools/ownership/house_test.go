package main

import "testing"

// The counts of retryproxy may fall. Whoever lowers one lowers its limit here.
const (
	maxForeignWrites = 18
	maxLongChains    = 59
	maxWideTypes     = 20 // with more than eight exported fields
	maxSharedFields  = 1  // of ownedPackages, that more than two files write
)

func TestWhoWritesWhat(t *testing.T) {
	f, err := measure(&options{dir: "../..", under: []string{"proxy", "policy"}, owned: ownedPackages, plain: plainTypes})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what   string
		n, max int
	}{
		{"foreign writes", len(f.writes), maxForeignWrites},
		{"long chains", sum(f.chains), maxLongChains},
		{"types with more than eight exported fields", len(f.exported), maxWideTypes},
		{"fields with an owner that more than two files write", len(f.shared), maxSharedFields},
	} {
		if c.n > c.max {
			t.Errorf("%s: %d, at most %d; cd tools/ownership && go run . -v ../.. shows them", c.what, c.n, c.max)
		}
		if c.n == 0 {
			t.Errorf("%s: none, which the tool cannot be right about", c.what)
		}
	}
}
