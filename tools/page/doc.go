// Package page tests retryproxy's page in a real browser: it loads without complaints, shows the
// state, works with the keyboard and is readable in both colour schemes. It is a separate module so
// that only it depends on the browser's driver. `make e2e-page` runs it, and `make page-pictures`
// takes the pictures in docs/pictures.
package page
