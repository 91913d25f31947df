package files

import (
	"sort"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// A BlobEntry is an entry of a list: a file, or with a delimiter the common prefix of some.
type BlobEntry struct {
	Name   string
	Prefix bool
	File   hubdata.Blob // unless Prefix; without its blocks, and not to be modified
}

// List returns at most most entries by name, those with a prefix and behind a name. next is the
// name behind which the next page begins; empty if there is none. The cost is that of the page.
func (c *BlobContainer) List(prefix, delimiter, after string, most int) (page []BlobEntry, next string,
	bad *BlobError) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	for i := sort.SearchStrings(c.files, max(prefix, after)); i < len(c.files) && strings.HasPrefix(c.files[i], prefix); {
		e := BlobEntry{Name: c.files[i]}
		if at := strings.Index(e.Name[len(prefix):], delimiter); delimiter != "" && at >= 0 {
			e = BlobEntry{Name: e.Name[:len(prefix)+at+len(delimiter)], Prefix: true}
			i += sort.Search(len(c.files)-i, func(n int) bool { return !strings.HasPrefix(c.files[i+n], e.Name) })
		} else {
			e.File = *c.blobs[e.Name].file
			e.File.Blocks = nil
			i++
		}
		switch {
		case e.Name <= after:
		case len(page) == most:
			return page, page[most-1].Name, nil
		default:
			page = append(page, e)
		}
	}
	return page, "", nil
}
