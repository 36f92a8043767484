package metrics

import "testing"

// Who waits for a request and sees none counted is woken by it, however close it comes.
func TestNoRequestBeginsUnnoticed(t *testing.T) {
	m := New(Options{})
	for range 2000 {
		r := newRoute("a", 1, &m.beginning)
		go r.Near().RequestBegan()
		next := m.NextRequest()
		if other := m.NextRequest(); r.InFlight() == 0 && other != next {
			select {
			case <-next: // it began between the two
			default:
				t.Fatal("two waiters for one request have two channels")
			}
		}
		if r.InFlight() == 0 {
			<-next // or the test's time ends
		}
	}
}
