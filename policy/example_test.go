package policy_test

import (
	"fmt"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
)

// table prints the first waits of a strategy in milliseconds.
func table(name string, o backoff.Options, retries int) {
	b, err := backoff.New(name, o)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(b)
	fmt.Println("retry   min ms   max ms")
	for _, row := range policy.Plan(b, retries, policy.PlanOptions{Samples: 1}) {
		fmt.Printf("%5d %8d %8d\n", row.Retry, row.Wait.Min.Milliseconds(), row.Wait.Max.Milliseconds())
	}
}

func ExampleFullJitter() {
	table("full-jitter", backoff.Options{}, 10)
	// Output:
	// full-jitter base=100ms factor=2 max=32s
	// retry   min ms   max ms
	//     1        0      100
	//     2        0      200
	//     3        0      400
	//     4        0      800
	//     5        0     1600
	//     6        0     3200
	//     7        0     6400
	//     8        0    12800
	//     9        0    25600
	//    10        0    32000
}

func ExampleEqualJitter() {
	table("equal-jitter", backoff.Options{}, 10)
	// Output:
	// equal-jitter base=100ms factor=2 max=32s
	// retry   min ms   max ms
	//     1       50      100
	//     2      100      200
	//     3      200      400
	//     4      400      800
	//     5      800     1600
	//     6     1600     3200
	//     7     3200     6400
	//     8     6400    12800
	//     9    12800    25600
	//    10    16000    32000
}

// Each row assumes that the previous wait was the shortest or the longest.
func ExampleDecorrelated() {
	table("decorrelated", backoff.Options{}, 8)
	// Output:
	// decorrelated base=100ms factor=3 max=32s
	// retry   min ms   max ms
	//     1      100      300
	//     2      100      900
	//     3      100     2700
	//     4      100     8100
	//     5      100    24300
	//     6      100    32000
	//     7      100    32000
	//     8      100    32000
}

func ExampleFixed() {
	table("fixed", backoff.Options{Extra: 50 * time.Millisecond}, 3)
	// Output:
	// fixed base=100ms plus up to 50ms
	// retry   min ms   max ms
	//     1      100      150
	//     2      100      150
	//     3      100      150
}

func ExampleNone() {
	table("none", backoff.Options{}, 2)
	// Output:
	// none
	// retry   min ms   max ms
	//     1        0        0
	//     2        0        0
}

func ExampleAdditive() {
	table("additive", backoff.Options{}, 8)
	// Output:
	// additive base=1s factor=2 spread=1s max=32s
	// retry   min ms   max ms
	//     1     1000     2000
	//     2     2000     3000
	//     3     4000     5000
	//     4     8000     9000
	//     5    16000    17000
	//     6    31000    32000
	//     7    31000    32000
	//     8    31000    32000
}

// One wait in a thousand is shorter than the minimum, and one is longer than the maximum.
func ExampleNormal() {
	table("normal", backoff.Options{Factor: 2.7, Max: 10 * time.Minute}, 10)
	// Output:
	// normal base=100ms factor=2.7 jitter=0.1 max=10m0s
	// retry   min ms   max ms
	//     1      100      100
	//     2      185      354
	//     3      441     1088
	//     4     1087     3194
	//     5     2653     9244
	//     6     6700    27022
	//     7    17039    76613
	//     8    42361   220137
	//     9   108067   619909
	//    10   272034   779991
}

func ExampleSlots() {
	table("slots", backoff.Options{}, 11)
	// Output:
	// slots base=10ms slots=10 reset max=32s
	// retry   min ms   max ms
	//     1        0       10
	//     2        0       30
	//     3        0       70
	//     4        0      150
	//     5        0      310
	//     6        0      630
	//     7        0     1270
	//     8        0     2550
	//     9        0     5110
	//    10        0        0
	//    11        0       10
}

func ExampleRatio() {
	table("ratio", backoff.Options{}, 10)
	// Output:
	// ratio base=1s ratio=1 max=1h0m0s
	// retry   min ms   max ms
	//     1     1000     1000
	//     2     2000     2000
	//     3     4000     4000
	//     4     8000     8000
	//     5    16000    16000
	//     6    32000    32000
	//     7    64000    64000
	//     8   128000   128000
	//     9   256000   256000
	//    10   512000   512000
}

// This helps to choose ratio: after an outage of that length, how long is the next wait, and how
// many tries were there? The recovery is noticed that much too late, at most.
func ExampleRatio_Tries() {
	for _, ratio := range []float64{1, 0.1} {
		b, outage := backoff.Ratio{First: time.Second, Ratio: ratio, Max: time.Hour}, 1030*time.Second
		fmt.Printf("ratio %.1f: after %v a wait of %v, with %.0f tries\n", b.Ratio, outage, b.After(outage).Round(time.Second), b.Tries(outage))
	}
	// Output:
	// ratio 1.0: after 17m10s a wait of 17m11s, with 10 tries
	// ratio 0.1: after 17m10s a wait of 1m44s, with 49 tries
}

func ExamplePolicy_Decide() {
	on, _ := policy.ParseRetryOn("5xx,429,connect-failure,reset")
	p := policy.Policy{RetryOn: on, MaxRetries: 3, Backoff: backoff.FullJitter{Base: 100 * time.Millisecond, Factor: 2, Max: 32 * time.Second}}
	unavailable := policy.Result{Status: 503, RetryAfter: 20 * time.Second, HasRetryAfter: true}
	for _, left := range []time.Duration{15 * time.Second, 30 * time.Second} {
		at := policy.Situation{MaxRetries: p.MaxRetries, Safe: p.Retryable([]byte("GET"), false), Left: left}
		d := p.Decide(&unavailable, &at, nil, 0, backoff.Shared())
		fmt.Println(left, d.Retry, d.Why, d.Wait >= 20*time.Second)
	}
	// Output:
	// 15s false retry_after_too_long false
	// 30s true status_503 true
}
