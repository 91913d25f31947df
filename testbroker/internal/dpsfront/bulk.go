package dpsfront

import (
	"fmt"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/internal/dps"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// maxBulk is how many enrollments a bulk operation may have, as in the service's documents.
const maxBulk = 10

// A bulkResult is the answer to a bulk operation. Enrollments without an error have been changed.
type bulkResult struct {
	IsSuccessful bool        `json:"isSuccessful"`
	Errors       []bulkError `json:"errors"`
}

type bulkError struct {
	RegistrationID    string `json:"registrationId,omitempty"`
	EnrollmentGroupID string `json:"enrollmentGroupId,omitempty"`
	ErrorCode         int    `json:"errorCode"`
	ErrorStatus       string `json:"errorStatus"`
}

// bulk creates, changes or deletes enrollments of a kind, each independently of the others.
func (b backEnd) bulk(q *web.Request, group bool) (web.Answer, error) {
	var in struct {
		Mode        string       `json:"mode"`
		Enrollments []enrollment `json:"enrollments"`
		Groups      []enrollment `json:"enrollmentGroups"`
	}
	if err := readJSON(q, &in, "a bulk operation"); err != nil {
		return web.Answer{}, err
	}
	member, all := "enrollments", in.Enrollments
	if group {
		member, all = "enrollmentGroups", in.Groups
	}
	if len(all) == 0 || len(all) > maxBulk {
		return web.Answer{}, fmt.Errorf("%s has %d elements, want 1 to %d", member, len(all), maxBulk)
	}
	apply, ok := bulkModes[strings.ToLower(in.Mode)]
	if !ok {
		return web.Answer{}, fmt.Errorf("mode %q is unknown; give create, update, updateIfMatchETag or delete", in.Mode)
	}
	result := bulkResult{Errors: []bulkError{}}
	for i := range all {
		if err := apply(b.dps, &all[i], group, version(q)); err != nil {
			bad := refusal(err)
			result.Errors = append(result.Errors, bulkError{
				all[i].RegistrationID, all[i].EnrollmentGroupID, bad.Code, bad.Text,
			})
		}
	}
	result.IsSuccessful = len(result.Errors) == 0
	return web.AnswerJSON(result, ""), nil
}

// bulkModes maps the modes, in lower case, to what they do with an enrollment.
var bulkModes = map[string]func(s *dps.Service, d *enrollment, group bool, v dps.Version) error{
	"create": func(s *dps.Service, d *enrollment, group bool, v dps.Version) error {
		e, err := d.enrollment(group, v)
		if err == nil {
			_, err = s.Enroll(e)
		}
		return err
	},
	"update": func(s *dps.Service, d *enrollment, group bool, v dps.Version) error {
		return replace(s, d, group, "*", v)
	},
	"updateifmatchetag": func(s *dps.Service, d *enrollment, group bool, v dps.Version) error {
		return replace(s, d, group, strings.Trim(d.ETag, `"`), v)
	},
	"delete": func(s *dps.Service, d *enrollment, group bool, v dps.Version) error {
		id := d.RegistrationID
		if group {
			id = d.EnrollmentGroupID
		}
		e, err := s.Stored(id)
		if err == nil && e.Group != group {
			err = fmt.Errorf("%w: %s", dps.ErrNotEnrolled, id)
		}
		if err != nil {
			return err
		}
		return s.Delete(id)
	},
}

func replace(s *dps.Service, d *enrollment, group bool, etag string, v dps.Version) error {
	e, err := d.enrollment(group, v)
	if err != nil {
		return err
	}
	return s.Replace(e, etag, v)
}
