package servicefront

import (
	"math"
	"slices"

	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/query"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

func queryTwins(q *web.Request, body *struct {
	Query string `json:"query"`
}) (web.Answer, error) {
	asked, err := query.Parse(body.Query)
	if err != nil {
		return web.Answer{}, q.Hub.ServiceError(hub.CodeArgumentInvalid, "%v", err)
	}
	page, next, err := rowsOf(q, asked, body.Query)
	if err != nil {
		return web.Answer{}, err
	}
	kind := "Raw"
	if asked.Whole() {
		kind = itemTypes[asked.From()]
	}
	return pageAnswer(page, next, kind), nil
}

// itemTypes are the kinds of whole documents, as in the header x-ms-item-type.
var itemTypes = map[query.Collection]string{query.Devices: "Twin", query.Modules: "Twin", query.Jobs: "DeviceJob"}

// rowsOf returns a page of the rows of a query, and the token of the next page.
func rowsOf(q *web.Request, asked *query.Query, text string) (page []document.Tree, next string, err error) {
	from, size, err := pageAsked(q, text)
	if err != nil {
		return nil, "", err
	}
	page, to := rowsFrom(q.Hub, asked, from, size)
	return page, to.token(text), nil
}

// rowsFrom returns the rows behind a cursor, at most size, and the cursor behind them; nil = there
// are no more.
func rowsFrom(h *hub.Hub, asked *query.Query, from cursor, size int) ([]document.Tree, *cursor) {
	list := listingOf(h, asked.From())
	if asked.Grouped() {
		var all []document.Tree
		for i := range list.keys {
			if doc := list.document(i); doc != nil {
				all = append(all, doc)
			}
		}
		rows, more := asked.Groups(all, from.rows, size)
		if !more {
			return rows, nil
		}
		return rows, &cursor{rows: from.rows + size}
	}
	most := math.MaxInt
	if asked.Top() > 0 {
		most = asked.Top() - from.rows
	}
	return pageOf(list.keys, from, size, most, func(i int) (document.Tree, bool) {
		doc := list.document(i)
		if doc == nil || !asked.Accepts(doc) {
			return nil, false
		}
		return asked.Row(doc), true
	})
}

// A listing is the members of a collection, in the order of their keys.
type listing struct {
	keys     []string
	document func(i int) document.Tree // nil if it has been removed
}

// listingOf returns the members of a collection.
func listingOf(h *hub.Hub, c query.Collection) listing {
	if c == query.Jobs {
		return deviceJobs(h)
	}
	all := collected(h, c)
	list := listing{keys: make([]string, len(all)), document: func(i int) document.Tree { return TwinOf(h, all[i]) }}
	for i, id := range all {
		list.keys[i] = id.String()
	}
	return list
}

// collected returns the devices or modules, sorted by name.
func collected(h *hub.Hub, c query.Collection) []identity.Identity {
	return slices.DeleteFunc(h.Identities(), func(id identity.Identity) bool {
		return (id.Module != "") != (c == query.Modules)
	})
}

// TwinOf returns the twin of an identity as back ends see it; nil if it has been removed.
func TwinOf(h *hub.Hub, id identity.Identity) document.Tree {
	t, err := h.TwinState(id)
	if err != nil {
		return nil
	}
	d, err := documentOf(h, id)
	if err != nil {
		return nil
	}
	doc, _ := service(h, t, d)
	return doc
}
