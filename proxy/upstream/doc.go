// Package upstream answers one question: give me a connection to the place
// where requests are sent.
//
// Begin with [ParseTarget], which turns the text of a setting into a [Target],
// and [Target.UseTLS] when the operator named certificate files. Make one
// [Group] per [Target.Key] with [NewGroup]: a [Pool] for each address that the
// target has. Then, per attempt:
//
//   - [Group.Choose] says which address is to have it;
//   - [Group.TryPooled] gives a kept connection without blocking, without a
//     context and without allocating, or nil;
//   - [Group.Get] does the same and dials when there is none. Its error is
//     always a [*DialError], and after it surely nothing of the request was sent;
//   - [Member.Answered] or [Member.Failed] of [Conn.Member] tells the address how it went;
//   - exactly one of [Conn.Release], [Conn.Close], [Conn.Abort] or
//     [Conn.CloseStale] ends the use of a [Conn].
//
// What is promised:
//
//   - A connection from the pool was looked at before it was handed out, or is
//     by [Conn.SendChecked] before it is written to (see [GetOptions.Unseen]): one that
//     the upstream closed, or that says something nobody asked for, is not used.
//     The upstream may still close it one microsecond later; the
//     client must expect that on any Conn with Reused set, and report it with
//     CloseStale so that the pool learns the upstream's patience.
//   - Names are looked up anew when their response has run out and after any
//     failure, and a dial tries every address.
//   - A TLS stream cut off without close_notify reads as
//     [io.ErrUnexpectedEOF], never as [io.EOF].
//   - No goroutine runs while a pool is unused. One timer per pool runs while
//     it holds idle connections, and one per group while it has connections or
//     an ejected address; [Group.Close] ends them.
//   - Nothing but the target, or what its name resolves to, is ever dialled;
//     proxy settings of the environment are not read.
//
// What to avoid: sharing a Conn between two requests, keeping a Conn after its
// use was ended, matching on error text (use [DialError.Kind]).
//
// The package has no logger: it returns errors and counts ([Group.Stats]).
package upstream
