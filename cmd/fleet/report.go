package main

import (
	"fmt"
	"html/template"
	"io"
	"strings"
)

// page is one file without references to others.
var page = template.Must(template.New("report").Parse(`<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>How the fleet comes back</title>
<style>
body { font: 15px/1.5 sans-serif; max-width: 76em; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; font-size: 13px; }
th, td { padding: .2em .7em; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
.wide { overflow-x: auto; }
svg { max-width: 100%; height: auto; }
</style>
<h1>How the fleet comes back</h1>
<p>Times count from the end of the fault, or from the moment when the devices are switched on; "-" if the scenario has
neither, "never" if it did not come to that. "Each" is per device. A peak is the largest number of attempts in a second;
"after" is from the end of the fault on. Steady is the mean before the fault, "-" if nothing is before it. Messages are
lost by full queues.
The distance is the share of the attempts of both curves, of the real fleet and of the simulated one, that have no
counterpart in the same interval.
What is simulated and what is a model: the documentation of package fleet.</p>
{{range .}}
<h2>{{.Title}}</h2>
<div class="wide"><table>
<tr>{{range .Head}}<th>{{.}}</th>{{end}}</tr>
{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table></div>
{{range .Plots}}{{.}}
{{end}}
{{end}}
</html>
`))

// section is a family as the page shows it.
type section struct {
	Title string
	Head  []string
	Rows  [][]string
	Plots []template.HTML
}

func writeReport(w io.Writer, families []family) error {
	var sections []section
	for i := range families {
		f := &families[i]
		s := section{Title: f.title()}
		for _, c := range f.columns() {
			s.Head = append(s.Head, c.title)
		}
		for _, r := range f.Results {
			s.Rows = append(s.Rows, f.row(r))
		}
		for _, p := range f.pictures() {
			svg, err := p.draw(f)
			if err != nil {
				return fmt.Errorf("plot of %s: %w", f.Scenario.Name, err)
			}
			s.Plots = append(s.Plots, inline(svg))
		}
		sections = append(sections, s)
	}
	return page.Execute(w, sections)
}

// inline returns an SVG file as an element of a page: without the header of a file. Its texts come
// through the plotting library, which escapes them.
func inline(svg []byte) template.HTML {
	text := string(svg)
	if i := strings.Index(text, "<svg"); i > 0 {
		text = text[i:]
	}
	return template.HTML(text)
}
