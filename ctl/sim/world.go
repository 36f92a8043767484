package sim

import (
	"math/rand/v2"
	"time"
)

// The kinds of events, with the kind of their who.
const (
	clientSends        eventKind = iota // client
	clientPatienceEnds                  // client
	jobLook                             // job
	attemptEnds                         // client: the attempt timeout
	waitEnds                            // client: its time in the queue is up
	retryDue                            // client: the wait before a retry is over
	proxyTimer                          // proxy
	slotWaitEnds                        // client, ViaSlots
	slotEnds                            // job, ViaSlots: by its number
	synDue                              // client, ViaNothing: its SYN is sent again
	faultBegins                         // index of the fault
	faultEnds                           // index of the fault
	burstBegins                         // index of the fault
)

// world is a running storm.
type world struct {
	Config
	*eventQueue
	rand    *rand.Rand
	clients []client
	// turns change when a try starts or ends, which voids its events. They are separate
	// from clients because most events are void: that takes a fifth less time.
	turns  []uint32
	path   path
	server server
	result *Result
	pace   float64 // clients pause for Every / pace
}

// path is the way of a client's try to the server. Each of its methods is called for a
// client with a try in flight.
type path interface {
	begin(c int32)
	leave(c int32)                // the client gave up
	responded(j *job, status int) // a job has ended; its client may have left. status 0 = reset
	endpointLost()                // one of several was killed
	on(e event)                   // an event of the path
}

// Run runs the storm.
func Run(c Config) *Result {
	w := newWorld(c)
	w.play()
	return w.result
}

func newWorld(c Config) *world {
	w := &world{
		Config:     c,
		eventQueue: newEventQueue(c.Length),
		rand:       rand.New(rand.NewPCG(c.Seed, 0x73746f726d)),
		pace:       1,
	}
	w.result = newResult(&w.Config)
	w.server.init(w)
	switch c.Via {
	case ViaSlots:
		w.path = newSlots(w)
	case ViaProxy:
		w.path = newProxies(w)
	default:
		w.path = newStraight(w)
	}
	w.beginClients()
	for i, f := range c.Faults {
		if f.Kind == Burst {
			w.after(f.At, burstBegins, int32(i), 0)
			continue
		}
		w.after(f.At, faultBegins, int32(i), 0)
		w.after(f.At+f.For, faultEnds, int32(i), 0)
	}
	return w
}

func (w *world) play() {
	for {
		e, ok := w.next()
		if !ok {
			break
		}
		w.handle(e)
	}
	if p, is := w.path.(*proxies); is {
		p.sumUp()
	}
	w.result.finish()
}

func (w *world) handle(e event) {
	switch e.kind {
	case clientSends:
		if w.turns[e.who] == e.turn {
			w.send(e.who)
		}
	case clientPatienceEnds:
		if w.turns[e.who] == e.turn {
			w.patienceEnds(e.who)
		}
	case jobLook:
		w.server.look(e.who, e.turn)
	case faultBegins:
		w.fault(&w.Faults[e.who], true)
	case faultEnds:
		w.fault(&w.Faults[e.who], false)
		w.result.over(int(e.who), w.now)
	case burstBegins:
		w.burst(w.Faults[e.who].N)
	default:
		w.path.on(e)
	}
}

func (w *world) fault(f *Fault, begins bool) {
	switch f.Kind {
	case Surge:
		w.pace = 1
		if begins {
			w.pace = f.Times
		}
	default:
		w.server.fault(f, begins)
	}
}

// since returns the time since t.
func (w *world) since(t time.Duration) time.Duration { return w.now - t }
