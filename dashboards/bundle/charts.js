/* What the pages draw with, and nothing else of ECharts: lines and points on one pair of axes, and a zoom. */
import {LineChart, ScatterChart} from "echarts/charts";
import {DataZoomInsideComponent, DataZoomSliderComponent, GridComponent, TooltipComponent} from "echarts/components";
import {init, use} from "echarts/core";
import {CanvasRenderer} from "echarts/renderers";

use([
  CanvasRenderer,
  DataZoomInsideComponent,
  DataZoomSliderComponent,
  GridComponent,
  LineChart,
  ScatterChart,
  TooltipComponent,
]);

export {init};
