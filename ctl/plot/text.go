package plot

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/retryproxy/retryproxy/internal/terminal"
)

// screen is the output of Text, within its bounds.
type screen struct{ terminal.Screen }

const defaultHeight = 16

// bounded limits the width to 40..400 and the height to 4..200 rows between the axes of each panel. A
// height of 0 means defaultHeight.
func bounded(s terminal.Screen) screen {
	if s.Height == 0 {
		s.Height = defaultHeight
	}
	s.Width = min(max(s.Width, 40), 400)
	s.Height = min(max(s.Height, 4), 200)
	return screen{s}
}

// Text draws a valid figure with characters, one panel below the other. Each line ends with \n, and
// none is wider than the screen. With colours, these distinguish the lines. Without, each line has
// its own character, and Braille dots are only used for a single line.
func (f *Figure) Text(on terminal.Screen) string {
	s := bounded(on)
	var b strings.Builder
	if f.Title != "" {
		fmt.Fprintf(&b, "%s\n\n", s.bold(cut(f.Title, s.Width)))
	}
	colours := map[string]int{}
	for i, name := range f.Names() {
		colours[name] = i
	}
	for i := range f.Panels {
		if i > 0 {
			b.WriteByte('\n')
		}
		d := newDrawing(&f.Panels[i], s, colours)
		d.draw()
		d.write(&b)
	}
	return b.String()
}

// ansi are the ANSI colours by series. The first ones are readable on dark and light backgrounds.
var ansi = []string{"36", "33", "35", "32", "34", "31", "96", "93", "95", "92", "94", "91"}

// glyphs are the characters by series if there are no colours.
const glyphs = "*o+x#@%&=~sn"

func (s screen) bold(text string) string { return s.Paint("1", text) }

func (s screen) paint(text string, series int) string {
	if series < 0 {
		return text
	}
	return s.Paint(ansi[series%len(ansi)], text)
}

// box holds the characters of axes.
type box struct{ left, leftTick, corner, bottom, bottomTick, mark, line string }

func (s screen) box() box {
	if s.Unicode {
		return box{"│", "┤", "└", "─", "┬", "┊", "──"}
	}
	return box{"|", "+", "+", "-", "+", ":", "--"}
}

// write writes the panel with its axes.
func (d *drawing) write(b *strings.Builder) {
	if d.panel.Title != "" {
		fmt.Fprintf(b, "%s\n", d.screen.bold(cut(d.panel.Title, d.screen.Width)))
	}
	if d.panel.Y.Label != "" {
		fmt.Fprintf(b, "%s\n", cut(d.panel.Y.Label, d.screen.Width))
	}
	for row := range d.rows {
		label, edge := d.yLabels[row], d.box.left
		if label != "" {
			edge = d.box.leftTick
		}
		line := fmt.Sprintf("%*s %s", d.margin-2, label, edge) + d.cells(row)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	d.writeXAxis(b)
	d.writeLegend(b)
}

// writeXAxis writes the line of ticks, their labels and the axis's label.
func (d *drawing) writeXAxis(b *strings.Builder) {
	edge := make([]string, d.columns)
	for i := range edge {
		edge[i] = d.box.bottom
	}
	labels := []rune(strings.Repeat(" ", d.margin+d.columns))
	free := 0 // the first column that a label may take
	for _, t := range d.panel.X.Ticks(d.x, d.columns/8) {
		column := d.column(t.Value)
		edge[column] = d.box.bottomTick
		text := []rune(t.Label)
		at := min(max(d.margin+column-len(text)/2, 0), len(labels)-len(text))
		if at < free || len(text) == 0 {
			continue
		}
		copy(labels[at:], text)
		free = at + len(text) + 1
	}
	indent := strings.Repeat(" ", d.margin-1)
	fmt.Fprintf(b, "%s%s%s\n%s\n", indent, d.box.corner, strings.Join(edge, ""), strings.TrimRight(string(labels), " "))
	if label := cut(d.panel.X.Label, d.columns); label != "" {
		pad := d.margin + (d.columns-utf8.RuneCountInString(label))/2
		fmt.Fprintf(b, "%s%s\n", strings.Repeat(" ", pad), label)
	}
}

// writeLegend writes one entry per line and per mark, as many per row as fit.
func (d *drawing) writeLegend(b *strings.Builder) {
	room := d.screen.Width - d.margin
	used := 0
	entry := func(symbol, text string, series int) {
		text = cut(text, room-4)
		width := utf8.RuneCountInString(symbol) + 1 + utf8.RuneCountInString(text)
		switch {
		case used == 0:
			b.WriteString(strings.Repeat(" ", d.margin))
		case used+3+width > room:
			b.WriteString("\n" + strings.Repeat(" ", d.margin))
			used = 0
		default:
			b.WriteString("   ")
			used += 3
		}
		b.WriteString(d.screen.paint(symbol, series) + " " + text)
		used += width
	}
	for _, l := range d.legend {
		entry(l.symbol, l.name, l.series)
	}
	for _, m := range d.panel.Marks {
		text := d.panel.X.label(m.At, d.x.High-d.x.Low)
		if m.To > m.At {
			text += " to " + d.panel.X.label(m.To, d.x.High-d.x.Low)
		}
		entry(d.box.mark, strings.TrimSpace(text+" "+m.Label), -1)
	}
	if used > 0 {
		b.WriteByte('\n')
	}
}

// cut shortens s to n characters.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:max(n-1, 0)]) + "~"
}
