// Package simulate runs simulations of an outage in virtual time, with several
// configurations, and compares the results.
//
// A [Wish] is the user's request; [Wish.Runs] makes runs of it, [Play] runs them, and the
// resulting Simulation has two forms: Text for people, Figure for a picture. Package sim does the simulation, with the code of package policy that the proxy
// itself uses. It opens no socket and reads no clock: the same wish returns the same
// simulation.
package simulate
