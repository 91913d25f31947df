package blobfront

import (
	"net/http"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/files"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// conditions are the conditional headers of a request. An empty one is no condition. ETags may lack
// their quotes, as in lists of blobs.
type conditions struct {
	match, noneMatch           string
	modifiedSince, unmodifiedS time.Time
}

func conditionsOf(q *web.Request) (c conditions, bad *files.BlobError) {
	for name, at := range map[string]*time.Time{"If-Modified-Since": &c.modifiedSince,
		"If-Unmodified-Since": &c.unmodifiedS} {
		if text := q.Header.Get(name); text != "" {
			t, err := http.ParseTime(text)
			if err != nil {
				return c, blobBadHeader
			}
			*at = t
		}
	}
	c.match, c.noneMatch = strings.Trim(q.Header.Get("If-Match"), `"`), strings.Trim(q.Header.Get("If-None-Match"), `"`)
	return c, nil
}

// failed reports which conditions fail for what exists: those that want a certain version, and
// those that want another one. Times have a resolution of a second.
func (c *conditions) failed(etag string, changed time.Time) (wanted, unwanted bool) {
	changed = changed.Truncate(time.Second)
	wanted = c.match != "" && c.match != "*" && c.match != etag ||
		!c.unmodifiedS.IsZero() && changed.After(c.unmodifiedS)
	unwanted = c.noneMatch == etag || c.noneMatch == "*" || !c.modifiedSince.IsZero() && !changed.After(c.modifiedSince)
	return wanted, unwanted
}

func writeCondition(q *web.Request, t *target) (files.BlobCheck, *files.BlobError) {
	c, bad := conditionsOf(q)
	return func(old *hubdata.Blob) *files.BlobError {
		if old == nil {
			if c.match != "" {
				return blobConditionNotMet
			}
			return nil
		}
		wanted, unwanted := c.failed(old.ETag, old.Stored)
		switch {
		case c.noneMatch == "*":
			return blobExists
		case wanted || unwanted:
			return blobConditionNotMet
		case t.onlyNew:
			return blobOverwrites
		}
		return nil
	}, bad
}

// changeCondition returns the condition of a request that changes or deletes a file that exists.
func changeCondition(q *web.Request) (files.BlobCheck, *files.BlobError) {
	c, bad := conditionsOf(q)
	return func(old *hubdata.Blob) *files.BlobError {
		if wanted, unwanted := c.failed(old.ETag, old.Stored); wanted || unwanted {
			return blobConditionNotMet
		}
		return nil
	}, bad
}

func checkRead(q *web.Request, etag string, changed time.Time) *files.BlobError {
	c, bad := conditionsOf(q)
	if bad != nil {
		return bad
	}
	wanted, unwanted := c.failed(etag, changed)
	switch {
	case wanted:
		return blobConditionNotMet
	case unwanted:
		return blobNotModified
	}
	return nil
}
