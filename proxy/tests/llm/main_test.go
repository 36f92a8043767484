// Package llm tests what a route to the API of a language model promises: event streams are retried until their first
// content, the waits and errors of the vendors are understood, and tokens and accounts are counted.
package llm

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
