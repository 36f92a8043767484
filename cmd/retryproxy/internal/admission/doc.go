// Package admission is the mutating admission webhook: it answers the API
// server's question about a Pod with the change that package inject makes.
//
// The types are the few fields of admission.k8s.io/v1 that are used, written
// down here: the API's own package weighs more than the rest of the program.
package admission
