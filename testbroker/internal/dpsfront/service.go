package dpsfront

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/dps"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// serviceRoutes returns the routes of back ends: enrollments, groups and registrations.
func serviceRoutes(s *dps.Service) []web.Route {
	b := backEnd{s}
	one, group := "enrollments", "enrollmentGroups"
	var all []web.Route
	add := func(method, path string, do func(q *web.Request) (web.Answer, error)) {
		all = append(all, web.Route{Kind: fault.RouteRegistry, Method: method, Path: path, Open: true, Do: b.wrap(do)})
	}
	for _, kind := range []string{one, group} {
		grouped := kind == group
		for _, path := range []string{kind, kind + "/"} { // some clients send the slash
			add(http.MethodPost, path, func(q *web.Request) (web.Answer, error) { return b.bulk(q, grouped) })
		}
		add(http.MethodPost, kind+"/query", func(q *web.Request) (web.Answer, error) { return b.query(q, grouped) })
		add(http.MethodPost, kind+"/{id}/attestationmechanism", func(q *web.Request) (web.Answer, error) {
			return b.attestation(q, grouped)
		})
		add(http.MethodPut, kind+"/{id}", func(q *web.Request) (web.Answer, error) { return b.put(q, grouped) })
		add(http.MethodGet, kind+"/{id}", func(q *web.Request) (web.Answer, error) { return b.get(q, grouped) })
		add(http.MethodDelete, kind+"/{id}", func(q *web.Request) (web.Answer, error) { return b.remove(q, grouped) })
	}
	add(http.MethodGet, "registrations/{id}", b.registration)
	add(http.MethodDelete, "registrations/{id}", b.removeRegistration)
	add(http.MethodPost, "registrations/{id}/query", b.queryRegistrations)
	return all
}

type backEnd struct{ dps *dps.Service }

// wrap checks the API version and the token of a request, and turns errors into answers.
func (b backEnd) wrap(do func(q *web.Request) (web.Answer, error)) func(q *web.Request) web.Answer {
	return func(q *web.Request) web.Answer {
		if _, bad := dps.FindVersion(versionName(q)); bad != nil {
			return b.fail(bad)
		}
		if err := authorize(q); err != nil {
			q.Conn.Refused(q.Request, identity.Identity{}, http.StatusUnauthorized, err)
			return b.fail(dps.Errorf(dps.CodeUnauthorized, "header Authorization: %v", err))
		}
		q.Conn.Served()
		a, err := do(q)
		if err != nil {
			return b.fail(refusal(err))
		}
		return a
	}
}

// versionName returns the version of the API that a request is for.
func versionName(q *web.Request) string { return q.Query.Get("api-version") }

// version returns what that version has.
func version(q *web.Request) dps.Version {
	v, _ := dps.FindVersion(versionName(q)) // wrap has checked it
	return v
}

// members maps fields of an enrollment to the members of its document.
var members = map[string]string{
	"ID": "registrationId", "PrimaryKey": "attestation.symmetricKey.primaryKey",
	"SecondaryKey": "attestation.symmetricKey.secondaryKey", "DeviceID": "deviceId", "Allocation": "allocationPolicy",
	"Allocate": "allocationPolicy", "Reprovision": "reprovisionPolicy", "Tags": "initialTwin.tags",
	"Desired": "initialTwin.properties.desired", "EndorsementKey": "attestation.tpm.endorsementKey",
	"CertificatePolicy.Namespace": "namespaceName", "CertificatePolicy.Authority": "certificateAuthorityName",
	"CertificatePolicy.Name": "certificatePolicyName", "DeviceTypeRefs": "deviceTypeRefs",
}

// refusal returns an error as back ends receive it, with the service's code.
func refusal(err error) *dps.Error {
	var bad *dps.Error
	var field *dps.FieldError
	switch {
	case errors.As(err, &bad):
		return bad
	case errors.As(err, &field):
		name := cmp.Or(members[field.Field], field.Field)
		if strings.HasPrefix(name, "Certificates") {
			name = "attestation.x509"
		}
		return dps.Errorf(dps.CodeBadRequest, "%s: %s; %s", name, field.Problem, field.Fix)
	case errors.Is(err, dps.ErrNotEnrolled):
		return dps.Errorf(dps.CodeNotEnrolled, "%v", err)
	case errors.Is(err, dps.ErrEnrolled):
		return dps.Errorf(dps.CodeConflict, "%v; to change it, send its etag in the header If-Match", err)
	default:
		return dps.Errorf(dps.CodeBadRequest, "%v", err)
	}
}

func (b backEnd) fail(bad *dps.Error) web.Answer {
	return answer(dps.Answer{Status: bad.Status(), Body: b.dps.ErrorBody(bad)})
}

// authorize checks the token: its resource must be the service, and it must be of a policy.
func authorize(q *web.Request) error {
	tokens := q.Header.Values("Authorization")
	if len(tokens) != 1 {
		return errors.New("want one shared access signature")
	}
	t, err := identity.ParseToken(tokens[0])
	if err != nil {
		return err
	}
	resource, err := url.PathUnescape(t.Resource)
	if err != nil || !strings.EqualFold(resource, q.Hub.Host) {
		return fmt.Errorf("sr is %q; sign for the host name of the service, %s", t.Resource, q.Hub.Host)
	}
	return q.Hub.AuthorizePolicy(t, hubdata.RightRegistryWrite)
}

// find returns an enrollment of the kind of the path.
func (b backEnd) find(q *web.Request, group bool) (dps.Stored, error) {
	e, err := b.dps.Stored(q.Vars["id"])
	if err == nil && e.Group != group {
		err = fmt.Errorf("%w: %s", dps.ErrNotEnrolled, q.Vars["id"])
	}
	return e, err
}

func (b backEnd) get(q *web.Request, group bool) (web.Answer, error) {
	e, err := b.find(q, group)
	if err != nil {
		return web.Answer{}, err
	}
	return web.AnswerJSON(b.document(q, e, false), ""), nil
}

// attestation returns the keys, which other answers than that of a PUT lack.
func (b backEnd) attestation(q *web.Request, group bool) (web.Answer, error) {
	e, err := b.find(q, group)
	if err != nil {
		return web.Answer{}, err
	}
	return web.AnswerJSON(b.document(q, e, true).Attestation, ""), nil
}

// put adds an enrollment, or replaces one if the client names its ETag.
func (b backEnd) put(q *web.Request, group bool) (web.Answer, error) {
	var d enrollment
	if err := readJSON(q, &d, "an enrollment"); err != nil {
		return web.Answer{}, err
	}
	e, err := d.enrollment(group, version(q))
	if err != nil {
		return web.Answer{}, err
	}
	if !strings.EqualFold(e.ID, q.Vars["id"]) {
		return web.Answer{}, fmt.Errorf("%s is %q, the path says %q", idOf(group), e.ID, q.Vars["id"])
	}
	etag := etagOf(q)
	if _, err := b.dps.Stored(e.ID); err == nil && etag != "" {
		err = b.dps.Replace(e, etag, version(q))
		if err != nil {
			return web.Answer{}, err
		}
	} else if _, err := b.dps.Enroll(e); err != nil {
		return web.Answer{}, err
	}
	stored, err := b.find(q, group)
	if err != nil {
		return web.Answer{}, err
	}
	return web.AnswerJSON(b.document(q, stored, true), ""), nil
}

// readJSON reads the body.
func readJSON(q *web.Request, into any, what string) error {
	body, long := q.Read(dps.MaxBody)
	if long != nil {
		return dps.Errorf(dps.CodeBadRequest, "body: %s", long.Text)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("body: it is not %s in JSON: %w", what, err)
	}
	return nil
}

// etagOf returns the header If-Match; empty if there is none.
func etagOf(q *web.Request) string { return strings.Trim(q.Header.Get("If-Match"), `"`) }

// idOf returns the member with the id.
func idOf(group bool) string {
	if group {
		return "enrollmentGroupId"
	}
	return "registrationId"
}

func (b backEnd) remove(q *web.Request, group bool) (web.Answer, error) {
	e, err := b.find(q, group)
	if err != nil {
		return web.Answer{}, err
	}
	if etag := etagOf(q); etag != "" && etag != "*" && etag != e.ETag {
		return web.Answer{}, dps.Errorf(dps.CodePrecondition, "header If-Match: the etag of %s is %q; read it again", e.ID,
			e.ETag)
	}
	if err := b.dps.Delete(e.ID); err != nil {
		return web.Answer{}, err
	}
	return web.Answer{Status: http.StatusNoContent}, nil
}

// query returns a page of all enrollments of a kind. Conditions are not supported.
func (b backEnd) query(q *web.Request, group bool) (web.Answer, error) {
	var all []enrollment
	for _, e := range b.dps.Enrollments() {
		if stored, err := b.dps.Stored(e.ID); err == nil && e.Group == group {
			all = append(all, b.document(q, stored, false))
		}
	}
	return page(q, all, "enrollment")
}

func page[T any](q *web.Request, all []T, item string) (web.Answer, error) {
	const most = 1000
	from, size := 0, most
	for name, into := range map[string]*int{"x-ms-continuation": &from, "x-ms-max-item-count": &size} {
		if text := q.Header.Get(name); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 {
				return web.Answer{}, fmt.Errorf("header %s: %q is not a number of the service", name, text)
			}
			*into = n
		}
	}
	from = min(from, len(all))
	end := min(from+min(max(size, 1), most), len(all))
	a := web.AnswerJSON(append([]T{}, all[from:end]...), "")
	a.Header.Set("x-ms-item-type", item)
	if end < len(all) {
		a.Header.Set("x-ms-continuation", strconv.Itoa(end))
	}
	return a, nil
}

func (b backEnd) registration(q *web.Request) (web.Answer, error) {
	state, err := b.dps.State(q.Vars["id"], versionName(q))
	if err != nil {
		return web.Answer{}, err
	}
	return answer(dps.Answer{Status: http.StatusOK, Body: state}), nil
}

func (b backEnd) removeRegistration(q *web.Request) (web.Answer, error) {
	if err := b.dps.DeleteRegistration(q.Vars["id"], cmp.Or(etagOf(q), "*")); err != nil {
		return web.Answer{}, err
	}
	return web.Answer{Status: http.StatusNoContent}, nil
}

// queryRegistrations returns a page of the registrations of a group.
func (b backEnd) queryRegistrations(q *web.Request) (web.Answer, error) {
	var all []json.RawMessage
	for _, r := range b.dps.Registrations() {
		if !strings.EqualFold(r.EnrollmentID, q.Vars["id"]) {
			continue
		}
		if state, err := b.dps.State(r.ID, versionName(q)); err == nil {
			all = append(all, state)
		}
	}
	return page(q, all, "deviceRegistration")
}
