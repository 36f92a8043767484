package apierror

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/retryafter"
)

// waitKey is what a key says about its value. The zero value means that it is no wait.
type waitKey struct {
	unit  time.Duration // of a number without one
	known bool          // it is one of waitForms
	dated bool          // only a date is a wait, as in next_retry, and a number is something else
}

// takes reports whether a value of such a key can be a wait.
func (w waitKey) takes(value []byte) bool { return !w.dated || retryafter.StartsDate(value) }

const maxKey = 48

// knownKeys are the keys of waitForms, as AppendPlain writes them.
var knownKeys = func() map[string]time.Duration {
	all := map[string]time.Duration{}
	for i := range waitForms {
		if f := &waitForms[i]; f.Key != "" {
			var b [maxKey]byte
			all[string(retryafter.AppendPlain(b[:0], []byte(f.Key)))] = f.Unit
		}
	}
	return all
}()

// keyOfWait returns what a key says about its value. A key that is not known counts as one of a wait
// if its words are about a retry or a reset, and about time. outer is the key of the object that the key
// is in: retry_after with the members seconds and nanos.
func keyOfWait(outer, key []byte) waitKey {
	if len(key) > maxKey || len(outer) > maxKey {
		return waitKey{}
	}
	var b [maxKey]byte
	if unit, known := knownKeys[string(retryafter.AppendPlain(b[:0], key))]; known {
		return waitKey{unit: unit, known: true}
	}
	w := retryafter.ReadName(key)
	if w.IsUnit() && len(outer) > 0 {
		if _, known := knownKeys[string(retryafter.AppendPlain(b[:0], outer))]; known {
			return waitKey{unit: w.Unit, known: true}
		}
		w = retryafter.ReadName(outer).In(w.Unit)
	}
	switch {
	case w.IsWait():
		return waitKey{unit: w.Unit}
	case w.IsEvent():
		return waitKey{unit: w.Unit, dated: true}
	}
	return waitKey{}
}
