/* What the pages draw with, and nothing else of ECharts: lines, points and heat maps on one pair of axes. */
import {HeatmapChart, LineChart, ScatterChart} from "echarts/charts";
import {GridComponent, TooltipComponent, VisualMapContinuousComponent} from "echarts/components";
import {init, use} from "echarts/core";
import {CanvasRenderer} from "echarts/renderers";

use([
  CanvasRenderer,
  GridComponent,
  HeatmapChart,
  LineChart,
  ScatterChart,
  TooltipComponent,
  VisualMapContinuousComponent,
]);

export {init};
