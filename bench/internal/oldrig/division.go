package oldrig

// Division is which cores are whose.
type Division struct {
	One  []int // a proxy on one core
	Two  []int // a proxy on two, where there are two
	Load []int // upstream and wrk
	// Beside: the load has cores of its own also beside a proxy on two.
	Beside bool
}

// Divide gives the proxy the first cores that this process may use, and the load the others.
func Divide() Division {
	all := Cores()
	d := Division{One: all[:1], Two: all[:min(2, len(all))], Load: all, Beside: len(all) >= 4}
	if len(all) > 1 {
		d.Load = all[1:]
	}
	return d
}
