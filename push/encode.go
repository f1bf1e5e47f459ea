// Requests: a profile of each kind, and for OpenTelemetry metrics next to it.

package push

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/otlp"
	"github.com/hbtrace/hbtrace/visualize/pprof"
)

// values are what a push holds: all that can be added up over pushes. Memory in use cannot.
var values = []weigh.Value{
	weigh.Samples, weigh.CPU, weigh.Wall, weigh.Blocked, weigh.Contentions, weigh.Delay, weigh.AllocObjects, weigh.AllocSpace,
}

// maxRequest is less than the 4 MiB that receivers over gRPC take by default.
const maxRequest = 7 << 19

type request struct {
	kind string
	body []byte
}

// encode makes the requests of one push. Reduced: the profile has no labels, as it would have been too large with them.
func encode(src trace.Source, o *Options) (list []request, reduced bool, err error) {
	resource := Resource(o.Service, src.Meta(), o.Session.Program, buildID(src))
	for _, noLabels := range []bool{false, true} {
		p, err := pprof.Profile(src, pprof.Options{Values: values, NoLabels: noLabels})
		if err != nil {
			return nil, false, err
		}
		var body []byte
		if o.Target.Protocol == Pyroscope {
			if body, err = pushRequest(p, resource); err != nil {
				return nil, false, err
			}
		} else {
			body = otlp.Encode(p, src.Meta(), resource)
		}
		list, reduced = []request{{kindProfiles, body}}, noLabels
		if len(body) <= maxRequest {
			break
		}
	}
	if o.Target.Protocol != Pyroscope {
		body, err := metricsRequest(src, resource)
		if err != nil {
			return nil, false, err
		}
		list = append(list, request{kindMetrics, body})
	}
	return list, reduced, nil
}

// buildID is that of the program.
func buildID(src trace.Source) string {
	ps := src.Processes()
	if len(ps) == 0 {
		return ""
	}
	for _, m := range src.Modules() {
		if m.Path == ps[0].Exe {
			return m.BuildID
		}
	}
	return ""
}

// Field numbers of Pyroscope's push/v1/push.proto and types/v1/types.proto.
const (
	pushSeries    = 1
	seriesLabels  = 1
	seriesSamples = 2
	labelName     = 1
	labelValue    = 2
	sampleProfile = 1
)

// pushRequest is a push.v1.PushRequest with one series.
func pushRequest(p *profile.Profile, resource map[string]string) ([]byte, error) {
	var gz bytes.Buffer
	if err := p.Write(&gz); err != nil {
		return nil, fmt.Errorf("writing the profile: %w", err)
	}
	labels := map[string]string{"__name__": "hbtrace"}
	for k, v := range resource {
		labels[labelOf(k)] = v
	}
	var series []byte
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		pair := field(field(nil, labelName, []byte(k)), labelValue, []byte(labels[k]))
		series = field(series, seriesLabels, pair)
	}
	series = field(series, seriesSamples, field(nil, sampleProfile, gz.Bytes()))
	return field(nil, pushSeries, series), nil
}

func field(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

// labelOf makes an attribute's name a label's: letters, digits and underscores.
func labelOf(attribute string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, attribute)
}
