package main

import (
	"fmt"
	"html"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/doctor"
	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
)

// report is what hubline doctor -html writes: one file without scripts and links, to be mailed. It
// has what the terminal shows, the device's name and the service's, and no key.
type report struct {
	rows    []doctor.Row
	summary string
	device  string // "pump-1 at hub.example"; empty: not known
	at      time.Time
}

// reportStyle needs no other file, and prints in black and white.
const reportStyle = `body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:60em;padding:0 1em;` +
	`color:#1a1a1a;background:#fff}table{border-collapse:collapse;width:100%}th,td{text-align:left;` +
	`vertical-align:top;padding:.4em .6em;border-bottom:1px solid #ccc}td:nth-child(-n+2){white-space:nowrap}` +
	`td:last-child{overflow-wrap:anywhere}` +
	`.ok{color:#126b2e}.warn{color:#8a5300}.BAD{color:#b00020;font-weight:bold}.skipped{color:#595959}` +
	`p.small{color:#595959}` +
	`@media(max-width:40em){thead{display:none}tr{display:block;border-bottom:1px solid #ccc;padding:.4em 0}` +
	`td{border:0;padding:0}td:nth-child(-n+2){padding-right:.6em}td:nth-child(n+3){display:block}}`

// subject returns the device of a target and its service, without what proves it.
func subject(to *target.Target) string {
	switch {
	case to.Creds != nil:
		name := to.Creds.DeviceID
		if to.Creds.ModuleID != "" {
			name += "/" + to.Creds.ModuleID
		}
		return name + " at " + to.Creds.Host
	case to.Identity != nil:
		host, _ := to.Provisioning()
		return "registration " + to.Identity.RegistrationID + " at " + host
	}
	return ""
}

// write replaces the file.
func (r *report) write(file string) error {
	if err := os.WriteFile(file, []byte(r.html()), 0o644); err != nil {
		return usage("-html: %v", err)
	}
	return nil
}

// html returns the page. Texts of the rows come from servers and proxies, so each is escaped.
func (r *report) html() string {
	var b strings.Builder
	text := func(s string) string { return html.EscapeString(visible(s)) }
	b.WriteString("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">" +
		"<meta name=\"viewport\" content=\"width=device-width\">" +
		"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n")
	fmt.Fprintf(&b, "<title>hubline doctor: %s</title><style>%s</style></head><body>\n", text(r.device), reportStyle)
	fmt.Fprintf(&b, "<h1>hubline doctor</h1>\n<p>%s<br>%s UTC</p>\n", text(r.device), r.at.UTC().Format(time.DateTime))
	fmt.Fprintf(&b, "<p><strong>%s</strong></p>\n", text(r.summary))
	b.WriteString("<table><thead><tr><th>result</th><th>step</th><th>figure</th><th>what it means</th></tr></thead>\n")
	b.WriteString("<tbody>\n")
	for _, row := range r.rows {
		mark, class := row.Mark.String(), row.Mark.String()
		if row.Mark == doctor.Skipped {
			mark, class = "not tried", "skipped"
		}
		fmt.Fprintf(&b, "<tr><td class=\"%s\">%s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n", class, mark,
			text(row.Check), text(row.Figure), text(row.Hint))
	}
	fmt.Fprintf(&b, "</tbody></table>\n<p class=\"small\">hubline %s, %s/%s. The report has no keys, tokens or "+
		"passwords.</p>\n</body></html>\n", text(version()), runtime.GOOS, runtime.GOARCH)
	return b.String()
}
