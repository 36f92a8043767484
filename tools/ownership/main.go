// Command ownership shows who writes whose fields in a Go module.
//
// It counts, outside tests and packages that import testing, for the packages below --under:
//
//   - foreign writes: a package changes a field of a type that another package of the module declares. It
//     does so by an assignment, ++ or an operator with =, by taking the field's address, or by calling a
//     method that does nothing but assign its parameter to one field. A composite literal is no foreign write. Fields of the
//     types in --plain do not count: they are values that whoever makes them may fill in.
//   - long chains: selector chains of four dots or more.
//   - types with more than eight exported fields.
//   - shared fields: fields of the packages in --owned that more than two files write.
//
// It exits with 2 if the module cannot be loaded or a type in --plain is not a plain value.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

func main() {
	o := options{dir: "."}
	under := flag.String("under", "proxy,policy", "count in these packages and those below them")
	owned := flag.String("owned", strings.Join(ownedPackages, ","), "packages whose fields have an owner")
	plain := flag.String("plain", "", "file with the names of plain value types, one per line (default: the list of this tool)")
	verbose := flag.Bool("v", false, "print each place")
	flag.Parse()
	if flag.NArg() > 0 {
		o.dir = flag.Arg(0)
	}
	o.under, o.owned, o.plain = strings.Split(*under, ","), strings.Split(*owned, ","), plainTypes
	if *plain != "" {
		text, err := os.ReadFile(*plain)
		if err != nil {
			fail(err)
		}
		o.plain = parsePlain(string(text))
	}
	f, err := measure(&o)
	if err != nil {
		fail(err)
	}
	f.print(os.Stdout, *verbose)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "ownership:", err)
	os.Exit(2)
}

// print writes the counts, the largest first, and each place if all is set.
func (f *findings) print(w io.Writer, all bool) {
	fmt.Fprintf(w, "foreign writes %d\n", len(f.writes))
	byWriter, byEdge := map[string]int{}, map[string]int{}
	for _, p := range f.writes {
		byWriter[p.writer]++
		byEdge[p.writer+" -> "+p.owner]++
	}
	rows(w, byWriter, "  ")
	rows(w, byEdge, "    ")
	fmt.Fprintf(w, "long chains %d\n", sum(f.chains))
	rows(w, f.chains, "  ")
	fmt.Fprintf(w, "types with more than eight exported fields %d\n", len(f.exported))
	rows(w, f.exported, "  ")
	fmt.Fprintf(w, "fields with an owner that more than two files write %d\n", len(f.shared))
	rows(w, f.shared, "  ")
	if all {
		for _, p := range f.writes {
			fmt.Fprintf(w, "%s: %s %s.%s\n", p.at, p.how, p.owner, p.field)
		}
		for _, at := range f.chainAt {
			fmt.Fprintln(w, at)
		}
	}
}

func rows(w io.Writer, counts map[string]int, indent string) {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b))
	})
	for i, name := range names {
		if i == 25 {
			fmt.Fprintf(w, "%s... %d more\n", indent, len(names)-i)
			break
		}
		fmt.Fprintf(w, "%s%s %d\n", indent, name, counts[name])
	}
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}
