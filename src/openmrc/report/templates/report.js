(function () {
  "use strict";
  const root = document.documentElement;
  const figures = JSON.parse(document.getElementById("figures-data").textContent);
  const plots = Array.from(document.querySelectorAll(".plot"));
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  const touch = window.matchMedia("(pointer: coarse)").matches;
  const PRINT_WIDTH = 660, PRINT_HEIGHT = 235; // CSS pixels: A4 and Letter without their margins
  let chosen = null; // the reader's choice; null follows the system
  let printing = false;

  function theme() {
    if (printing) return "light";
    return chosen || (prefersDark.matches ? "dark" : "light");
  }

  // a colour "@name" stands for the CSS variable --name
  function resolve(value, style) {
    if (typeof value === "string") return value.startsWith("@") ? style.getPropertyValue("--" + value.slice(1)).trim() : value;
    if (Array.isArray(value)) return value.map((item) => resolve(item, style));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolve(item, style)]));
    }
    return value;
  }

  function axisStyle(style) {
    const color = (name) => style.getPropertyValue("--" + name).trim();
    return { separatethousands: true, exponentformat: "none", gridcolor: color("grid"), zerolinecolor: color("rule"), linecolor: color("rule"), tickcolor: color("rule"), tickfont: { color: color("dim"), size: 12 } };
  }

  function layoutOf(figure, element, style) {
    const color = (name) => style.getPropertyValue("--" + name).trim();
    const narrow = element.clientWidth < 520;
    const layout = resolve(figure.layout, style);
    for (const key of Object.keys(layout).filter((name) => /^[xy]axis/.test(name))) {
      const axis = layout[key];
      layout[key] = Object.assign({ fixedrange: touch || key.startsWith("y") }, axisStyle(style), axis);
      if (axis.title) layout[key].title = { text: axis.title.text, standoff: 8, font: { size: 12.5, color: color("dim") } };
      if (narrow && key.startsWith("x")) layout[key].nticks = 6;
    }
    return Object.assign({
      height: printing ? PRINT_HEIGHT : figure.height,
      autosize: true,
      margin: { l: narrow ? 46 : 60, r: 14, t: 24, b: 44 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: color("fg") },
      hoverlabel: { bgcolor: color("hover"), bordercolor: color("rule"), font: { color: color("fg"), size: 12.5, family: getComputedStyle(document.body).fontFamily }, namelength: -1 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: color("dim"), activecolor: color("accent") },
      legend: { orientation: "h", x: 0, xanchor: "left", y: 0, yref: "container", yanchor: "bottom", font: { size: 12, color: color("fg") } },
      dragmode: touch ? false : "zoom",
      separators: ".,",
    }, layout, printing ? { width: PRINT_WIDTH, autosize: false } : {});
  }

  const config = {
    responsive: true,
    displaylogo: false,
    displayModeBar: touch ? false : "hover",
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    toImageButtonOptions: { format: "png", scale: 2 },
  };

  function draw() {
    root.dataset.theme = theme();
    document.getElementById("theme-name").textContent = theme() === "dark" ? "Dark" : "Light";
    const style = getComputedStyle(root);
    return Promise.all(plots.map((element) => {
      const figure = figures[element.dataset.figure];
      element.style.height = (printing ? PRINT_HEIGHT : figure.height) + "px";
      const name = { toImageButtonOptions: Object.assign({ filename: "openmrc-" + element.dataset.figure }, config.toImageButtonOptions) };
      return Plotly.react(element, resolve(figure.data, style), layoutOf(figure, element, style), Object.assign({}, config, name));
    }));
  }

  // zooming into one plot over time moves them all
  let following = false;
  function follow(source, change) {
    if (following) return;
    const reset = change["xaxis.autorange"] === true;
    const from = change["xaxis.range[0]"], to = change["xaxis.range[1]"];
    if (!reset && from === undefined) return;
    following = true;
    const others = plots.filter((element) => element !== source && figures[element.dataset.figure].overTime);
    Promise.all(others.map((element) => {
      const home = figures[element.dataset.figure].layout.xaxis.range;
      return Plotly.relayout(element, { "xaxis.range": reset ? home.slice() : [from, to] });
    })).finally(() => { following = false; });
  }

  document.getElementById("theme").addEventListener("click", () => {
    chosen = theme() === "dark" ? "light" : "dark";
    draw();
  });
  prefersDark.addEventListener("change", () => { if (!chosen) draw(); });

  const copy = document.getElementById("copy");
  if (copy) copy.addEventListener("click", () => {
    const code = document.getElementById("command");
    const done = () => { copy.textContent = "Copied"; setTimeout(() => { copy.textContent = "Copy"; }, 1500); };
    const select = () => { window.getSelection().selectAllChildren(code); copy.textContent = "Selected"; };
    if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(done, select);
    else select();
  });

  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = Array.from(document.querySelectorAll("details:not([open])"));
    opened.forEach((element) => { element.open = true; });
    printing = true;
    draw();
  });
  window.addEventListener("afterprint", () => {
    opened.forEach((element) => { element.open = false; });
    printing = false;
    draw();
  });

  draw().then(() => {
    plots.filter((element) => figures[element.dataset.figure].overTime)
      .forEach((element) => element.on("plotly_relayout", (change) => follow(element, change)));
    root.dataset.ready = String(plots.length);
  });
})();
