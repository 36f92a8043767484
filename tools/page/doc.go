// Package page looks at retryproxy's page in a real browser: that it loads
// without a complaint, shows what goes on, can be used by keyboard and read in
// both colour schemes. It is a module of its own because the browser's driver is
// nobody else's concern. `make e2e-page` runs it, `make page-pictures` lets it
// take the pictures in docs/pictures.
package page
