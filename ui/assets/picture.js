"use strict";
// The picture of one lock: its holders, and below them the waiters in their order.

const svgSpace = "http://www.w3.org/2000/svg";
const mostInPicture = 20;

function svgElement(name, attributes, text) {
  const element = document.createElementNS(svgSpace, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function cut(text, length) {
  return text.length > length ? text.slice(0, length - 1) + "…" : text;
}

// drawQueue returns an SVG element. forTime turns milliseconds into text.
function drawQueue(lock, forTime) {
  const width = 360, height = 46, gap = 22;
  const svg = svgElement("svg", { role: "img" });
  let y = 4;
  const box = (entry, role, more) => {
    svg.append(svgElement("rect", { x: 4, y: y, width: width - 8, height: height, rx: 8, class: entry.mode + " " + more }));
    svg.append(svgElement("text", { x: 16, y: y + 19 }, cut(entry.label || "no label", 44)));
    const note = role + ", " + entry.mode + ", for " + forTime(entry.age_ms);
    svg.append(svgElement("text", { x: 16, y: y + 36, class: "soft" }, note));
    y += height;
  };
  const arrow = () => {
    const middle = width / 2;
    svg.append(svgElement("path", { d: `M${middle} ${y + gap - 3}V${y + 4}m-5 6l5 -6l5 6` }));
    y += gap;
  };
  const note = (text) => {
    svg.append(svgElement("text", { x: width / 2, y: y + 18, class: "soft", "text-anchor": "middle" }, text));
    y += 26;
  };
  if (lock.all_holders === 0) note("no holder");
  lock.holders.slice(0, mostInPicture).forEach((entry, i) => {
    if (i > 0) y += 6;
    box(entry, "holder", "holds");
  });
  if (lock.all_holders > mostInPicture) note(`and ${lock.all_holders - mostInPicture} holders more`);
  lock.queue.slice(0, mostInPicture).forEach((entry, i) => {
    arrow();
    box(entry, "waiter " + (i + 1), "waits");
  });
  if (lock.all_waiters > mostInPicture) note(`and ${lock.all_waiters - mostInPicture} waiters more`);
  svg.setAttribute("viewBox", `0 0 ${width} ${y + 4}`);
  svg.setAttribute("aria-label", `${lock.all_holders} holders, and ${lock.all_waiters} waiters in the order of their turns`);
  return svg;
}
