package httpfront_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

var content = strings.Repeat("0123456789", 100)

// withFile runs a test with an update service that serves a file, at a provisioning service or at a
// hub, and with the path of the file.
func withFile(t *testing.T, o *testbroker.UpdatesOptions,
	test func(t *testing.T, d *testbroker.DPS, p *hubtest.Poster, path string)) {
	synctest.Test(t, func(t *testing.T) {
		d, err := testbroker.NewDPS(nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, d.Close()) }()
		u, err := testbroker.NewUpdates(o)
		require.NoError(t, err)
		id := updatedata.UpdateID{Provider: "Contoso", Name: "Tractor", Version: "1.1"}
		require.NoError(t, u.Publish(updatedata.Update{ID: id, Compatibility: []map[string]string{{"model": "Tractor"}},
			Steps: []updatedata.Step{{Handler: "microsoft/swupdate:1", Files: []string{"a b.swu"}}},
			Files: []updatedata.File{{Name: "a b.swu", Content: []byte(content)}}}))
		d.LinkUpdates(u)
		p := hubtest.NewPoster(t, d.Dial(testbroker.PortHTTPS), d.ClientTLS(), "")
		p.Base = "https://" + d.HostName()
		hash := sha256.Sum256([]byte(content))
		sum := sha256.Sum256(append([]byte("Contoso/Tractor/1.1/a b.swu"), hash[:]...))
		test(t, d, p, fmt.Sprintf("/updates/files/dev-1/f%x/a%%20b.swu", sum[:8]))
	})
}

func TestFilesAreServedInParts(t *testing.T) {
	withFile(t, nil, func(t *testing.T, _ *testbroker.DPS, p *hubtest.Poster, path string) {
		whole := p.Do("GET", path, "")
		require.Equal(t, 200, whole.StatusCode)
		require.Equal(t, content, whole.Text)
		require.Equal(t, "bytes", whole.Header.Get("Accept-Ranges"))
		etag := whole.Header.Get("ETag")
		for _, row := range []struct {
			header []string
			status int
			text   string
		}{
			{[]string{"Range", "bytes=990-"}, 206, content[990:]},
			{[]string{"Range", "bytes=5-9"}, 206, "56789"},
			{[]string{"Range", "bytes=1000-"}, 416, "invalid range: failed to overlap\n"},
			{[]string{"Range", "bytes=5-9", "If-Range", etag}, 206, "56789"},
			{[]string{"Range", "bytes=5-9", "If-Range", `"other"`}, 200, content},
			{[]string{"Range", "bytes=5-9", "If-Match", `"other"`}, 412, ""},
			{[]string{"If-None-Match", etag}, 304, ""},
		} {
			r := p.Do("GET", path, "", row.header...)
			require.Equal(t, row.status, r.StatusCode, row.header)
			require.Equal(t, row.text, r.Text, row.header)
		}
		head := p.Do("HEAD", path, "")
		require.Equal(t, "1000", head.Header.Get("Content-Length"))
		require.Empty(t, head.Text)
		p.Do("GET", "/updates/files/dev-1/f0/x", "").Refused(t, 404000)
		require.Contains(t, p.Do("GET", "/updates/rootkeypackage-1.json", "").Text, `{"protected":{"isTest":false`)
	})
}

func TestWrongFiles(t *testing.T) {
	withFile(t, nil, func(t *testing.T, d *testbroker.DPS, p *hubtest.Poster, path string) {
		etag := p.Do("GET", path, "").Header.Get("ETag")
		for text, ok := range map[string]func(r hubtest.Reply) bool{
			"content": func(r hubtest.Reply) bool { return r.Text != content[10:] && len(r.Text) == 990 },
			"short":   func(r hubtest.Reply) bool { return r.Text == content[10:999] },
			"long":    func(r hubtest.Reply) bool { return r.Text == content[10:]+"\x00" },
			"etag":    func(r hubtest.Reply) bool { return r.Header.Get("ETag") != etag && r.Text == content[10:] },
			"whole":   func(r hubtest.Reply) bool { return r.StatusCode == 200 && r.Text == content },
		} {
			d.Inject(fault.Fault{Kind: fault.WrongFile, Device: "dev-1", Text: text})
			require.True(t, ok(p.Do("GET", path, "", "Range", "bytes=10-")), text)
			require.Equal(t, content[10:], p.Do("GET", path, "", "Range", "bytes=10-").Text)
		}
		busy := fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteUpdateFile, RetryAfter: 7 * time.Second}
		d.Inject(busy)
		r := p.Do("GET", path, "")
		require.Equal(t, 503, r.StatusCode)
		require.Equal(t, "7", r.Header.Get("Retry-After"))
		gone := d.Inject(fault.Fault{Kind: fault.ResetBeforeRequest, Route: fault.RouteUpdateFile, Times: -1})
		_, err := p.Try("GET", path, "")
		require.Error(t, err)
		gone.Remove()
		d.Inject(fault.Fault{Kind: fault.DropDuringAnswer, Route: fault.RouteUpdateFile})
		_, err = p.Try("GET", path, "")
		require.Error(t, err)
		require.Equal(t, content, p.Do("GET", path, "").Text)
	})
}

func TestDownloadsKeepToTheirRate(t *testing.T) {
	withFile(t, &testbroker.UpdatesOptions{BytesPerSecond: 500}, func(t *testing.T, d *testbroker.DPS, p *hubtest.Poster,
		path string) {
		for rate, took := range map[float64]time.Duration{0: 2 * time.Second, 100: 10 * time.Second, 25: 40 * time.Second} {
			if rate > 0 {
				d.Inject(fault.Fault{Kind: fault.SlowFile, Rate: rate})
			}
			start := time.Now()
			require.Equal(t, content, p.Do("GET", path, "").Text)
			require.Equal(t, took, time.Since(start), fmt.Sprint(rate))
		}
		require.Equal(t, http.StatusPartialContent, p.Do("GET", path, "", "Range", "bytes=0-0").StatusCode)
	})
}
