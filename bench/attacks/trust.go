package main

import (
	"fmt"
	"slices"
)

// trustAttacks are by clients and upstreams that lie. Each has a judge of its own.
var trustAttacks = slices.Concat(prematureAttacks, ssrfAttacks, injectionAttacks, retryAfterAttacks, adminAttacks, smugglingAttacks)

// columns begins the table that the attack is a row of.
func (a *attack) columns() string {
	if a.prepare != nil {
		return "\n" + fmt.Sprintf(columns, "looked for")
	}
	return fmt.Sprintf(columns, "connections ended, streams refused")
}
