// Package webhook is the mutating admission webhook: it answers the API server's review of
// a Pod with the change that package inject makes.
//
// It declares the few fields of admission.k8s.io/v1 that it uses: the API's own package is
// larger than the rest of the program.
package webhook
