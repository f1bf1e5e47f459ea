// Metrics: sums over the time of a push, with delta temporality.

package push

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	"google.golang.org/protobuf/proto"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// maxObjects bounds the locks that metrics name; the others are one.
const maxObjects = 100

type waitKey struct{ state, call string }

// sums of one metric by its attributes.
type sums[K comparable] map[K]*[2]int64 // count, ns

func (s sums[K]) add(k K, n, ns int64) {
	x := s[k]
	if x == nil {
		x = new([2]int64)
		s[k] = x
	}
	x[0] += n
	x[1] += ns
}

// metricsRequest is an ExportMetricsServiceRequest.
func metricsRequest(src trace.Source, resource map[string]string) ([]byte, error) {
	m := src.Meta()
	tab := frames.New(src)
	locking := weigh.NewLocking(m, tab)
	waits, locks := sums[waitKey]{}, sums[string]{}
	var cpu, runnable, lost int64
	err := trace.Events(src, func(e *trace.Event) error {
		switch e.Kind {
		case trace.KindCPU, trace.KindThreadExit:
			cpu += max(0, e.CPU)
		case trace.KindUsage:
			runnable += max(0, e.Debt)
		case trace.KindLost:
			lost += int64(e.Count)
		case trace.KindWait, trace.KindCall:
			lock := e.Kind == trace.KindWait && locking.Wait(e.Hook, e.Stack)
			ns := max(0, int64(e.Time-e.Start))
			n := int64(max(1, e.Count))
			waits.add(waitKey{weigh.StateOf(e.Kind, m.Hooks[e.Hook], lock).Label(), frames.HookName(m, e.Hook)}, n, ns)
			if lock {
				name := tab.Object(e.Object)
				if _, ok := locks[name]; !ok && len(locks) >= maxObjects {
					name = "other"
				}
				locks.add(name, n, ns)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("adding up metrics: %w", err)
	}
	from, to := uint64(m.Started.UnixNano()), uint64(m.Started.UnixNano()+int64(m.EndNs-m.StartNs))
	point := func(v int64, attributes ...string) *metricspb.NumberDataPoint {
		p := &metricspb.NumberDataPoint{StartTimeUnixNano: from, TimeUnixNano: to, Value: &metricspb.NumberDataPoint_AsInt{AsInt: v}}
		for i := 0; i < len(attributes); i += 2 {
			p.Attributes = append(p.Attributes, attribute(attributes[i], attributes[i+1]))
		}
		return p
	}
	var list []*metricspb.Metric
	sum := func(name, unit, what string, points ...*metricspb.NumberDataPoint) {
		list = append(list, &metricspb.Metric{Name: name, Unit: unit, Description: what, Data: &metricspb.Metric_Sum{Sum: &metricspb.Sum{
			AggregationTemporality: metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_DELTA, IsMonotonic: true, DataPoints: points,
		}}})
	}
	var counts, times []*metricspb.NumberDataPoint
	keys := slices.SortedFunc(maps.Keys(waits), func(a, b waitKey) int {
		return cmp.Or(cmp.Compare(a.state, b.state), cmp.Compare(a.call, b.call))
	})
	for _, k := range keys {
		counts = append(counts, point(waits[k][0], "state", k.state, "call", k.call))
		times = append(times, point(waits[k][1], "state", k.state, "call", k.call))
	}
	sum("hbtrace.wait.count", "{wait}", "Waits and blocking calls above the threshold that ended.", counts...)
	sum("hbtrace.wait.time", "ns", "Time spent in them.", times...)
	counts, times = nil, nil
	for _, name := range slices.Sorted(maps.Keys(locks)) {
		counts = append(counts, point(locks[name][0], "lock", name))
		times = append(times, point(locks[name][1], "lock", name))
	}
	sum("hbtrace.lock.wait.count", "{wait}", "Waits for locks.", counts...)
	sum("hbtrace.lock.wait.time", "ns", "Time spent in them.", times...)
	sum("hbtrace.cpu.time", "ns", "CPU time that samples account for.", point(cpu))
	sum("hbtrace.runnable.time", "ns", "Run-queue delay.", point(runnable))
	sum("hbtrace.lost.records", "{record}", "Records that the recorder dropped.", point(lost))
	r := &resourcepb.Resource{}
	for _, k := range slices.Sorted(maps.Keys(resource)) {
		r.Attributes = append(r.Attributes, attribute(k, resource[k]))
	}
	body, err := proto.Marshal(&collectorpb.ExportMetricsServiceRequest{ResourceMetrics: []*metricspb.ResourceMetrics{{
		Resource: r, ScopeMetrics: []*metricspb.ScopeMetrics{{Scope: &commonpb.InstrumentationScope{Name: "hbtrace", Version: m.Version}, Metrics: list}},
	}}})
	if err != nil {
		return nil, fmt.Errorf("encoding metrics: %w", err)
	}
	return body, nil
}

func attribute(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: frames.Valid(value)}}}
}
