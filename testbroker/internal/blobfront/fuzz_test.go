package blobfront

import (
	"net/url"
	"testing"
)

func FuzzBlockList(f *testing.F) {
	f.Add("<BlockList><Latest>L1</Latest><Committed>C2</Committed><Uncommitted>U3</Uncommitted></BlockList>")
	f.Add("<BlockList/>")
	f.Add("<BlockList><Latest>")
	f.Fuzz(func(t *testing.T, body string) {
		list, err := parseBlockList([]byte(body))
		if err != nil && len(list) > 0 || len(list) > len(body)/len("<Latest/>") {
			t.Errorf("%q: %d blocks, %v", body, len(list), err)
		}
	})
}

func FuzzRange(f *testing.F) {
	for _, text := range []string{"", "bytes=0-", "bytes=2-4", "bytes=9-9223372036854775807", "bytes=-1", "bytes=4-2"} {
		f.Add(text, int64(10))
	}
	f.Fuzz(func(t *testing.T, text string, size int64) {
		if size < 0 {
			return
		}
		from, to, part, bad := parseRange(text, size)
		if bad == nil && (from < 0 || to > size || from > to || part && from == to) {
			t.Errorf("%q of %d bytes: %d to %d", text, size, from, to)
		}
	})
}

func FuzzList(f *testing.F) {
	f.Add("prefix=a&maxresults=5&include=metadata&marker=" + marker("name"))
	f.Add("maxresults=-1")
	f.Add("include=,,&marker=%00")
	f.Fuzz(func(t *testing.T, text string) {
		query, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		p, bad := parsePage(query)
		if bad == nil && (p.most < 1 || p.most > maxList || len(p.after) > len(p.marker)) {
			t.Errorf("%q: %+v", text, p)
		}
	})
}
